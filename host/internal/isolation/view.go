package isolation

import (
	"cmp"
	"fmt"
	"io/fs"
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
	hidden    access = "hidden"  // not to be seen
	partial   access = "partial" // a directory of what is shown below it, and of nothing else
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
	// Link is set if the path is a symbolic link, which is shown as one: where it leads.
	Link string `json:"link,omitempty"`
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
		"java", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias", "locale.conf", "localtime", "magic",
		"mime.types", "nsswitch.conf",
		"openssl", "os-release", "passwd", "perl", "pki/ca-trust", "pki/java", "pki/tls/cert.pem", "pki/tls/certs", "pki/tls/openssl.cnf",
		"protocols", "python3", "resolv.conf", "rpc", "services", "shells", "ssl/cert.pem", "ssl/certs",
		"ssl/openssl.cnf", "static", "terminfo", "timezone",
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
	for _, named := range p.Hidden {
		real, _ := filepath.EvalSymlinks(named)
		for _, path := range []string{named, cmp.Or(real, named)} {
			if dir := filepath.Dir(path); !isCommon(dir) {
				hide(dir)
			}
			hide(path)
		}
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
	return withoutHidden(sortView(all))
}

// leadsTo returns where a granted path leads. By links on the way, which another stage may have made, it must not lead
// to what it does not name itself: what is the host's own, or hidden.
func (p Process) leadsTo(f file) (string, error) {
	real, err := filepath.EvalSymlinks(f.path)
	if err != nil || real == f.path {
		return f.path, nil // it is missing, which a later error reports
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

// maxEntries bounds what stands in place of one directory: each is a mount, and a rule of Landlock.
const maxEntries = 4096

// withoutHidden returns the entries that show something. In place of a directory that holds something hidden there is
// what else it holds: nothing can be taken out of what Landlock allows, and what is mounted over a file is gone when
// the file is replaced. What comes into such a directory later is not shown.
func withoutHidden(view []entry) ([]entry, error) {
	w := &showing{named: map[string]bool{}}
	for _, e := range view {
		if w.named[e.Path] = true; e.Access == hidden {
			w.hidden = append(w.hidden, e.Path)
		}
	}
	for _, e := range view {
		switch e.Access {
		case hidden:
		case readOnly, readWrite:
			if err := w.add(e, e.Optional); err != nil {
				return nil, err
			}
		default:
			w.shown = append(w.shown, e)
		}
	}
	return w.shown, nil
}

// showing is a view that is made of another.
type showing struct {
	hidden []string
	named  map[string]bool // the paths that have an entry
	shown  []entry
}

// add adds an entry, or those of what it holds besides what is hidden. A directory that cannot be listed is an error, or left out.
func (w *showing) add(e entry, leaveOut bool) error {
	real := cmp.Or(e.Real, e.Path)
	if leads, err := filepath.EvalSymlinks(e.Path); err == nil {
		real = leads
	}
	i := slices.IndexFunc(w.hidden, func(path string) bool { return path != real && within(path, real) })
	if i < 0 {
		w.shown = append(w.shown, e)
		return nil
	}
	inside, err := os.ReadDir(real)
	switch {
	case err != nil && leaveOut:
		return nil
	case err != nil:
		return fmt.Errorf("show %s without %s, which is hidden from stages: %w", e.Path, w.hidden[i], err)
	case len(inside) > maxEntries:
		return fmt.Errorf("show %s without %s, which is hidden from stages: it has %d entries, and %d can be shown: move what is hidden to a directory of its own",
			e.Path, w.hidden[i], len(inside), maxEntries)
	}
	w.shown = append(w.shown, entry{Path: e.Path, Access: partial})
	for _, f := range inside {
		child := entry{Path: filepath.Join(e.Path, f.Name()), Access: e.Access, Optional: true, Real: filepath.Join(real, f.Name())}
		if w.named[child.Path] || slices.Contains(w.hidden, child.Real) {
			continue
		}
		if f.Type()&fs.ModeSymlink != 0 {
			if child.Link, err = os.Readlink(child.Real); err == nil {
				w.shown = append(w.shown, child)
			}
			continue
		}
		if err := w.add(child, leaveOut); err != nil {
			return err
		}
	}
	return nil
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
