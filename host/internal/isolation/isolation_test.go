package isolation

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	lacks := errors.New("no")
	for name, tc := range map[string]struct {
		machine Machine
		spec    Spec
		means   string
		missing string
	}{
		"all as root": {Machine{Root: true, Landlock: 9}, Spec{}, "uid nnp nocore userns mnt pid ipc uts net seccomp landlock9", ""},
		"all":         {Machine{Landlock: 7}, Spec{}, "nnp nocore userns mnt pid ipc uts net seccomp landlock7", ""},
		"network":     {Machine{Landlock: 4}, Spec{Network: true}, "nnp nocore userns mnt pid ipc uts seccomp landlock4", ""},
		"no namespaces": {Machine{Root: true, Landlock: 7, Namespaces: lacks}, Spec{}, "uid nnp nocore seccomp landlock7",
			"namespaces (no): the stage can connect to sockets of other programs that are open to its user, can leave processes that go on until the host ends, or longer if that is killed"},
		"no namespaces as a user": {Machine{Landlock: 5, Namespaces: lacks}, Spec{}, "nnp nocore seccomp landlock5",
			"namespaces (no): the stage has the user of catena, can connect to sockets of other programs that are open to its user, can send signals to the host, can leave processes that go on until the host ends, or longer if that is killed"},
		"new kernel as a user": {Machine{Landlock: 9, Namespaces: lacks}, Spec{}, "nnp nocore seccomp landlock9",
			"namespaces (no): the stage has the user of catena, can leave processes that go on until the host ends, or longer if that is killed"},
		"nothing": {Machine{Namespaces: lacks, Filter: lacks}, Spec{}, "nnp nocore",
			"namespaces (no): the stage has the user of catena, sees other processes, can connect to sockets of other programs that are open to its user, can send signals to the host, " +
				"can leave processes that go on until the host ends, or longer if that is killed; " +
				"seccomp (no): the stage can make every system call; landlock (the kernel has none): the stage can read and write all files of the user that runs catena, keys included"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pl, missing := tc.machine.plan(Process{Spec: tc.spec})
			var texts []string
			for _, err := range missing {
				texts = append(texts, err.Error())
			}
			if got := strings.Join(pl.means, " "); got != tc.means {
				t.Errorf("means are %s, want %s", got, tc.means)
			}
			if got := strings.Join(texts, "; "); got != tc.missing {
				t.Errorf("missing is %q, want %q", got, tc.missing)
			}
			if own := slices.Contains(pl.means, meansUID); own != pl.own {
				t.Errorf("a user of its own: %v", pl.own)
			}
		})
	}
}

func TestRefusal(t *testing.T) {
	t.Parallel()
	m := &Machine{Namespaces: errors.New("not permitted"), Filter: errors.New("no")}
	_, err := m.Prepare(Process{Stage: "hello", Spec: Spec{Mode: Required}}, nil)
	if err == nil || !strings.HasPrefix(err.Error(), "stages.hello.isolation is required, but this machine lacks ") {
		t.Errorf("got %v", err)
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	for want, means := range map[string][]string{
		"off":                       nil,
		"nnp+nocore":                {"nnp", "nocore"},
		"uid+mnt+seccomp+landlock7": {"uid", "nnp", "nocore", "mnt", "ipc", "uts", "seccomp", "landlock7"},
	} {
		if got := Summary(means); got != want {
			t.Errorf("%v: %s, want %s", means, got, want)
		}
	}
}

// What is inside of another entry comes after it, and something hidden matters only there.
func TestViewIsSorted(t *testing.T) {
	t.Parallel()
	got := sortView([]entry{
		{Path: "/opt/catena/data/stages/a", Access: readWrite}, {Path: "/opt/catena/data", Access: hidden},
		{Path: "/srv/run", Access: hidden}, {Path: "/opt", Access: readOnly}, {Path: "/opt-2", Access: readOnly},
		{Path: "/srv/run/x", Access: readOnly}, {Path: "/srv/run/x", Access: readWrite},
	})
	want := []entry{
		{Path: "/opt", Access: readOnly}, {Path: "/opt/catena/data", Access: hidden}, {Path: "/opt/catena/data/stages/a", Access: readWrite},
		{Path: "/opt-2", Access: readOnly}, {Path: "/srv/run/x", Access: readWrite},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

// Without a view of its own, there is what a directory holds besides something hidden in the place of that directory.
func TestExposed(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	for _, path := range []string{"opt/catena/data/stages/a", "opt/catena/secret", "opt/catena/other", "opt/tool", "usr"} {
		if err := os.MkdirAll(filepath.Join(base, path), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	in := func(path string) string { return filepath.Join(base, path) }
	view := sortView([]entry{
		{Path: in("opt"), Access: readOnly}, {Path: in("opt/catena/data"), Access: hidden}, {Path: in("opt/catena/secret"), Access: hidden},
		{Path: in("opt/catena"), Access: readOnly}, {Path: in("opt/catena/data/stages/a"), Access: readWrite}, {Path: in("usr"), Access: readOnly},
	})
	got := exposed(view, in("opt/catena/catena-stage-a"))
	want := []entry{
		{Path: in("opt/catena/other"), Access: readOnly, Optional: true}, {Path: in("opt/tool"), Access: readOnly, Optional: true},
		{Path: in("opt/catena/catena-stage-a"), Access: readOnly}, {Path: in("opt/catena/data/stages/a"), Access: readWrite}, {Path: in("usr"), Access: readOnly},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

// What is hidden is in reach where it, or a directory above it, is granted. The host's own directories are not.
func TestViewOfGrants(t *testing.T) {
	t.Parallel()
	p := Process{
		Spec: Spec{Files: []string{"/srv/egress", "/srv/keys/one.key:rw"}}, Binary: "/opt/p/catena-stage-x",
		Own: []string{"/srv/egress/data"}, Hidden: []string{"/srv/egress/proxy.key", "/srv/keys/one.key", "/srv/keys/two.key", "/usr/share/x/secret"},
	}
	view, err := p.view(nil)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		"/srv/egress/proxy.key": true, "/srv/egress/other": true, "/srv/egress/data/pki": false, "/srv/keys/one.key": true,
		"/srv/keys/two.key": false, "/srv/keys/other": false, "/usr/share/x/secret": false, "/usr/share/x/beside": false, "/usr/share/y": true,
	} {
		if shows(view, path) != want {
			t.Errorf("%s: not %v in %v", path, want, view)
		}
	}
}

// A grant leads nowhere by a link that it would not lead to by name.
func TestGrantedLink(t *testing.T) {
	t.Parallel()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(path string) string { return filepath.Join(base, path) }
	for _, dir := range []string{"data/pki", "data/stages/x", "shared", "etc/catena", "srv"} {
		if err := os.MkdirAll(in(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p := Process{Binary: "/opt/p/catena-stage-x", DataDir: in("data/stages/x"), Own: []string{in("data")}, Hidden: []string{in("etc/catena/catena.yaml")}}
	for to, allowed := range map[string]bool{"srv": true, "data/stages/x": true, "data/pki": false, "data": false, ".": false, "etc/catena": false, "etc": false} {
		link := in("shared/link-" + strings.ReplaceAll(to, "/", "-"))
		if err := os.Symlink(in(to), link); err != nil {
			t.Fatal(err)
		}
		p.Files = []string{link}
		if _, err := p.view(nil); (err == nil) != allowed || err != nil && !strings.Contains(err.Error(), "granted file "+link) {
			t.Errorf("%s: %v", to, err)
		}
	}
	p.Files = []string{in("data/pki")}
	if _, err := p.view(nil); err != nil {
		t.Errorf("by name: %v", err)
	}
}

func TestShows(t *testing.T) {
	t.Parallel()
	view := sortView([]entry{
		{Path: "/etc", Access: readOnly}, {Path: "/srv/catena", Access: hidden}, {Path: "/srv", Access: readOnly},
		{Path: "/srv/catena/stages/x", Access: readWrite}, {Path: "/tmp", Access: private}, {Path: "/dev/null", Access: device},
	})
	for path, want := range map[string]bool{
		"/etc/hosts": true, "/etc": true, "/etcd/x": false, "/srv/x": true, "/srv/catena/pki/ca.key": false, "/srv/catena/stages/x/a": true,
		"/srv/catena/stages/xy": false, "/tmp/x": false, "/dev/null": false, "/home/x": false,
	} {
		if shows(view, path) != want {
			t.Errorf("%s: not %v", path, want)
		}
	}
}
