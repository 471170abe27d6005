package isolation

import (
	"errors"
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
		uidErr  error
		means   string
		missing string
	}{
		"all as root": {Machine{Root: true, Landlock: 7}, Spec{}, nil, "uid nnp nocore userns mnt pid ipc uts net seccomp landlock7", ""},
		"all":         {Machine{Landlock: 7}, Spec{}, nil, "nnp nocore userns mnt pid ipc uts net seccomp landlock7", ""},
		"network":     {Machine{Landlock: 4}, Spec{Network: true}, nil, "nnp nocore userns mnt pid ipc uts seccomp landlock4", ""},
		"private binary": {Machine{Root: true, Landlock: 7}, Spec{}, lacks,
			"nnp nocore userns mnt pid ipc uts net seccomp landlock7", "a user of its own: no"},
		"no namespaces": {Machine{Root: true, Landlock: 7, Namespaces: lacks}, Spec{}, nil, "nnp nocore seccomp landlock7", "namespaces: no"},
		"nothing": {Machine{Namespaces: lacks, Filter: lacks}, Spec{}, nil, "nnp nocore",
			"namespaces: no; seccomp: no; landlock: the kernel has none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pl, missing := tc.machine.plan(Process{Spec: tc.spec}, firstUser, tc.uidErr)
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
			if own := slices.Contains(pl.means, meansUID); own != (pl.uid == firstUser) {
				t.Errorf("the user is %d", pl.uid)
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

// Without a view of its own, a directory that holds something hidden is left out.
func TestExposed(t *testing.T) {
	t.Parallel()
	got := exposed([]entry{
		{Path: "/opt", Access: readOnly}, {Path: "/opt/catena/data", Access: hidden}, {Path: "/opt/catena", Access: readOnly},
		{Path: "/opt/catena/data/stages/a", Access: readWrite}, {Path: "/usr", Access: readOnly},
	}, "/opt/catena/catena-stage-a", []string{"/opt/catena/data"})
	want := []entry{
		{Path: "/opt/catena/catena-stage-a", Access: readOnly}, {Path: "/opt/catena/data/stages/a", Access: readWrite}, {Path: "/usr", Access: readOnly},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
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
