package isolation

import (
	"errors"
	"fmt"
	"io/fs"
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

// tree makes directories, files and links (PATH -> WHERE IT LEADS) in a directory, and returns what makes a path of a name in it.
func tree(t *testing.T, names ...string) func(name string) string {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(base, name) }
	for _, name := range names {
		name, to, link := strings.Cut(name, " -> ")
		err := os.MkdirAll(filepath.Dir(in(name)), 0o755)
		switch {
		case link:
			err = errors.Join(err, os.Symlink(to, in(name)))
		case strings.HasSuffix(name, "/"):
			err = errors.Join(err, os.MkdirAll(in(name), 0o755))
		default:
			err = errors.Join(err, os.WriteFile(in(name), nil, 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return in
}

// In the place of a directory that holds something hidden, there is what else it holds.
func TestWithoutHidden(t *testing.T) {
	t.Parallel()
	in := tree(t, "opt/catena/data/stages/a/", "opt/catena/secret", "opt/catena/catena-stage-a", "opt/catena/module", "opt/link -> /elsewhere", "opt/tool", "usr/",
		"etc/certs -> ../real", "real/one.pem", "real/key.pem")
	got, err := withoutHidden(sortView([]entry{
		{Path: in("opt"), Access: readOnly}, {Path: in("opt/catena/data"), Access: hidden}, {Path: in("opt/catena/secret"), Access: hidden},
		{Path: in("opt/catena"), Access: readOnly}, {Path: in("opt/catena/data/stages/a"), Access: readWrite}, {Path: in("usr"), Access: readOnly},
		{Path: in("etc/certs"), Access: readOnly}, {Path: in("real"), Access: readOnly}, {Path: in("real/key.pem"), Access: hidden},
	}))
	if err != nil {
		t.Fatal(err)
	}
	beside := func(path, real string) entry {
		return entry{Path: in(path), Access: readOnly, Optional: true, Real: in(real)}
	}
	link := beside("opt/link", "opt/link")
	link.Link = "/elsewhere"
	dir := func(path string) entry { return entry{Path: in(path), Access: partial} }
	want := []entry{
		dir("etc/certs"), beside("etc/certs/one.pem", "real/one.pem"),
		dir("opt"), link, beside("opt/tool", "opt/tool"),
		dir("opt/catena"), beside("opt/catena/catena-stage-a", "opt/catena/catena-stage-a"), beside("opt/catena/module", "opt/catena/module"), {Path: in("opt/catena/data/stages/a"), Access: readWrite},
		dir("real"), beside("real/one.pem", "real/one.pem"),
		{Path: in("usr"), Access: readOnly},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// A directory that holds something hidden and cannot be shown without it is an error, or left out if it need not be there.
func TestWithoutHiddenOfMany(t *testing.T) {
	t.Parallel()
	in := tree(t, "many/secret")
	for i := range maxEntries {
		if err := os.Symlink("x", in(fmt.Sprintf("many/%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	secret := entry{Path: in("many/secret"), Access: hidden}
	if _, err := withoutHidden([]entry{{Path: in("many"), Access: readOnly}, secret}); err == nil || !strings.Contains(err.Error(), in("many/secret")) {
		t.Errorf("got %v", err)
	}
	missing := entry{Path: in("missing"), Access: readOnly}
	secret.Path = in("missing/secret")
	if _, err := withoutHidden([]entry{missing, secret}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	missing.Optional = true
	if got, err := withoutHidden([]entry{missing, secret}); len(got) != 0 || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

// What is hidden is in reach where it, or a directory above it, is granted. The host's own directories are not.
func TestViewOfGrants(t *testing.T) {
	t.Parallel()
	in := tree(t, "srv/egress/proxy.key", "srv/egress/other", "srv/egress/data/pki/", "srv/keys/one.key", "srv/keys/two.key", "srv/keys/other",
		"srv/linked/v1/secret", "srv/linked/v1/other", "srv/linked/secret -> v1/secret", "srv/linked/tool", "opt/p/")
	p := Process{
		Spec: Spec{Files: []string{in("srv/egress"), in("srv/keys/one.key:rw"), in("srv/linked/tool")}}, Binary: in("opt/p/catena-stage-x"),
		Own: []string{in("srv/egress/data")}, Hidden: []string{in("srv/egress/proxy.key"), in("srv/keys/one.key"), in("srv/keys/two.key"), in("srv/linked/secret")},
	}
	view, err := p.view(nil)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		in("srv/egress/proxy.key"): true, in("srv/egress/other"): true, in("srv/egress/data/pki"): false, in("srv/keys/one.key"): true,
		in("srv/keys/two.key"): false, in("srv/keys/other"): false, in("srv/linked/secret"): false, in("srv/linked/v1/secret"): false, in("srv/linked/v1/other"): false,
		in("srv/linked/tool"): true, "/usr/share/y": true,
	} {
		if shows(view, path) != want {
			t.Errorf("%s: not %v in %v", path, want, view)
		}
	}
}

// A grant leads nowhere by a link that it would not lead to by name.
func TestGrantedLink(t *testing.T) {
	t.Parallel()
	in := tree(t, "data/pki/", "data/stages/x/", "shared/", "etc/catena/", "srv/")
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
