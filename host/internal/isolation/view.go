package isolation

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// access is what a process can do below a path of its view.
type access string

const (
	readOnly  access = "ro"
	readWrite access = "rw"
	hidden    access = "hidden"  // an empty directory
	private   access = "private" // an empty directory of its own, to write
	device    access = "device"
)

// entry is one path of the view. A path is the same inside and outside.
type entry struct {
	Path   string `json:"path"`
	Access access `json:"access"`
	// Optional entries are left out where they do not exist.
	Optional bool `json:"optional,omitempty"`
}

// tmpSize is how much a process can write to its directories in memory.
const tmpSize = "256m"

// system is what every process reads: programs, libraries, configuration of the machine with
// certificates and time zones, and what runtimes learn of processors and limits from.
func system() []entry {
	var all []entry
	for _, path := range []string{
		"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix/store", "/gnu/store",
		"/sys/devices/system/cpu", "/sys/fs/cgroup", "/sys/kernel/mm/transparent_hugepage",
	} {
		all = append(all, entry{Path: path, Access: readOnly, Optional: true})
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom"} {
		all = append(all, entry{Path: "/dev/" + name, Access: device, Optional: true})
	}
	return append(all, entry{Path: "/tmp", Access: private}, entry{Path: "/dev/shm", Access: private})
}

// view returns what the process sees, sorted: what is inside of another entry comes after it.
func (p Process) view(env []string) ([]entry, error) {
	granted, err := p.files()
	if err != nil {
		return nil, err
	}
	all := system()
	add := func(path string, a access, optional bool) {
		if path == "" {
			return
		}
		all = append(all, entry{Path: path, Access: a, Optional: optional})
		if real, err := filepath.EvalSymlinks(path); err == nil && real != path {
			all = append(all, entry{Path: real, Access: a, Optional: optional})
		}
	}
	add(filepath.Dir(p.Binary), readOnly, false)
	for _, kv := range env {
		switch name, value, _ := strings.Cut(kv, "="); name {
		case "SSL_CERT_FILE", "SSL_CERT_DIR", "ZONEINFO":
			if filepath.IsAbs(value) {
				add(value, readOnly, true)
			}
		}
	}
	if p.Network {
		if real, err := filepath.EvalSymlinks("/etc/resolv.conf"); err == nil {
			add(real, readOnly, true)
		}
	}
	for _, dir := range p.Hidden {
		add(dir, hidden, true)
	}
	add(p.DataDir, readWrite, false)
	add(p.Dir, readWrite, false)
	for _, socket := range p.Sockets {
		add(socket, readOnly, false)
	}
	for _, f := range granted {
		a := readOnly
		if f.write {
			a = readWrite
		}
		add(f.path, a, false)
	}
	return sortView(all), nil
}

// sortView sorts by path. Of several entries for one path, the last one counts. What is hidden
// and within nothing that is shown needs no entry.
func sortView(all []entry) []entry {
	last := map[string]entry{}
	for _, e := range all {
		e.Path = filepath.Clean(e.Path)
		last[e.Path] = e
	}
	var view []entry
	for _, e := range last {
		view = append(view, e)
	}
	slices.SortFunc(view, func(a, b entry) int {
		return slices.Compare(strings.Split(a.Path, "/"), strings.Split(b.Path, "/"))
	})
	return slices.DeleteFunc(view, func(e entry) bool {
		return e.Access == hidden && !slices.ContainsFunc(view, func(other entry) bool {
			return other.Access != hidden && other.Path != e.Path && within(e.Path, other.Path)
		})
	})
}

// shows reports whether a sorted view has a file, by the entry that is closest to it.
func shows(view []entry, path string) bool {
	path = filepath.Clean(path)
	for _, e := range slices.Backward(view) {
		if within(path, e.Path) {
			return e.Access == readOnly || e.Access == readWrite
		}
	}
	return false
}

// within reports whether path is dir or below it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// exposed returns the entries without those that show something hidden, for a process that
// gets no view of its own: nothing can be taken out of a directory there. In the place of the
// directory of the binary there is the binary alone then.
func exposed(view []entry, binary string, hide []string) []entry {
	var kept []entry
	for _, e := range view {
		shows := slices.ContainsFunc(hide, func(dir string) bool { return within(filepath.Clean(dir), e.Path) })
		switch {
		case e.Access == hidden:
		case !shows:
			kept = append(kept, e)
		case e.Path == filepath.Dir(binary):
			kept = append(kept, entry{Path: binary, Access: readOnly})
		}
	}
	return kept
}

// temporary returns an environment with a directory for temporary files that is in reach: /tmp in
// a view of its own, and dir elsewhere.
func temporary(env []string, view bool, dir string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, "TMPDIR=") })
	if !view && dir != "" {
		env = append(env, "TMPDIR="+dir)
	}
	return env
}

// workingDir is where the process starts: in the host's directory if that is in reach.
func workingDir(dataDir string) []string {
	dir, err := os.Getwd()
	if err != nil {
		dir = ""
	}
	return slices.DeleteFunc([]string{dir, cmp.Or(dataDir, "/"), "/"}, func(s string) bool { return s == "" })
}
