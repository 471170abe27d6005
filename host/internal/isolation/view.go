package isolation

import (
	"cmp"
	"fmt"
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
	hidden    access = "hidden"  // an empty directory, or an empty file in the place of one
	private   access = "private" // an empty directory of its own, to write
	device    access = "device"
)

// entry is one path of the view. A path is the same inside and outside.
type entry struct {
	Path   string `json:"path"`
	Access access `json:"access"`
	// Optional entries are left out where they do not exist.
	Optional bool `json:"optional,omitempty"`
	// Real is where the path has to lead, if that matters: others may change links on the way.
	Real string `json:"real,omitempty"`
}

// system is what every process reads: programs, libraries, configuration of the machine with
// certificates and time zones, and what runtimes learn of processors and limits from.
func system() []entry {
	var all []entry
	for _, path := range []string{
		"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store",
		"/sys/devices/system/cpu", "/sys/fs/cgroup", "/sys/kernel/mm/transparent_hugepage",
	} {
		all = append(all, entry{Path: path, Access: readOnly, Optional: true})
	}
	for _, name := range etc() {
		all = append(all, entry{Path: "/etc/" + name, Access: readOnly, Optional: true})
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom"} {
		all = append(all, entry{Path: "/dev/" + name, Access: device, Optional: true})
	}
	return append(all, entry{Path: "/tmp", Access: private}, entry{Path: "/dev/shm", Access: private})
}

// etc are the files and directories of /etc that programs need to run: names of users and machines, certificates of
// authorities, time zones, libraries. The rest is configuration of others.
func etc() []string {
	return []string{
		"alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "gai.conf", "group", "host.conf", "hostname", "hosts",
		"java", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias", "locale.conf", "localtime", "magic", "mime.types", "nsswitch.conf",
		"openssl", "os-release", "passwd", "perl", "pki/ca-trust", "pki/java", "pki/tls/cert.pem", "pki/tls/certs", "pki/tls/openssl.cnf",
		"protocols", "python3", "resolv.conf", "rpc", "services", "shells", "ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "static", "terminfo", "timezone",
	}
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
	for _, path := range p.Own {
		add(path, hidden, true)
	}
	hide := func(path string) {
		if !slices.ContainsFunc(granted, func(f file) bool { return within(path, f.path) }) {
			add(path, hidden, true)
		}
	}
	for _, path := range p.Hidden {
		if dir := filepath.Dir(path); !isCommon(dir) {
			hide(dir)
		}
		hide(path)
	}
	add(filepath.Dir(p.Binary), readOnly, false)
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
		real, err := p.leadsTo(f)
		if err != nil {
			return nil, err
		}
		for _, path := range []string{f.path, real} {
			all = append(all, entry{Path: path, Access: a, Real: real})
		}
	}
	return sortView(all), nil
}

// leadsTo returns where a granted path leads. By links on the way, which another stage may have made, it must not lead to what it does not name itself: what is the host's own,
// or hidden.
func (p Process) leadsTo(f file) (string, error) {
	real, err := filepath.EvalSymlinks(f.path)
	if err != nil || real == f.path {
		return f.path, nil // it is missing, which an error says that comes later
	}
	for _, path := range slices.Concat(p.Own, p.Hidden) {
		own := p.DataDir != "" && within(real, p.DataDir)
		if (within(real, path) || within(path, real)) && !within(f.path, path) && !own {
			return "", fmt.Errorf("granted file %s: leads to %s by a link, where %s is, which stages do not see: name the path itself, or change the link", f.path, real, path)
		}
	}
	return real, nil
}

// isCommon reports whether a directory has what programs need, besides a file in it that is hidden.
func isCommon(dir string) bool {
	if strings.Count(dir, "/") <= 2 && within(dir, "/usr") {
		return true
	}
	return slices.ContainsFunc(system(), func(e entry) bool { return within(e.Path, dir) })
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

// exposed returns the entries without what is hidden, for a process that gets no view of its own: nothing can be taken out of
// a directory there. In the place of one that holds something hidden there is what else it holds; in the
// place of the directory of the binary, there is the binary alone then.
func exposed(view []entry, binary string) []entry {
	var hide []string
	for _, e := range view {
		if e.Access == hidden {
			hide = append(hide, e.Path)
		}
	}
	var kept []entry
	for _, e := range view {
		switch {
		case e.Access == hidden:
		case e.Path == filepath.Dir(binary) && holds(e.Path, hide):
			kept = append(kept, entry{Path: binary, Access: readOnly})
		default:
			kept = append(kept, without(e, hide)...)
		}
	}
	return kept
}

// holds reports whether a directory has something hidden in it.
func holds(dir string, hide []string) bool {
	return slices.ContainsFunc(hide, func(path string) bool { return path != dir && within(path, dir) })
}

// maxEntries bounds what stands in the place of one directory: one with more is left out.
const maxEntries = 1000

// without returns an entry, or those of what it holds besides what is hidden.
func without(e entry, hide []string) []entry {
	if !holds(e.Path, hide) {
		return []entry{e}
	}
	inside, err := os.ReadDir(e.Path)
	if err != nil || len(inside) > maxEntries {
		return nil
	}
	var kept []entry
	for _, f := range inside {
		path := filepath.Join(e.Path, f.Name())
		if !slices.Contains(hide, path) {
			kept = append(kept, without(entry{Path: path, Access: e.Access, Optional: true}, hide)...)
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
