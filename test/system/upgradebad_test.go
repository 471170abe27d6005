package system

import (
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/test/internal/cluster"
)

// slowRelease is one whose process comes up when there is a file in its directory.
const slowRelease, comeUp = "v1.36.8", "come-up"

// otherCore is core of a release that there is not: the one that the directory of its binary is called. It knows no flags, and reads
// objects of one kind, in a version that no object has.
func otherCore() sdk.Stage {
	dir := filepath.Dir(os.Args[0])
	release := filepath.Base(dir)
	return sdk.Stage{
		Name: "core", Version: release,
		Kubernetes: func() sdk.Kubernetes {
			return sdk.Kubernetes{Release: release, Kinds: []sdk.KubernetesKind{{Kind: "Namespace", Versions: []string{"v0"}, Served: []string{"v0"}, StorageVersion: "v0"}}}
		},
		New: func(env *sdk.Env) (http.Handler, error) {
			for release == slowRelease {
				if _, err := os.Stat(filepath.Join(dir, comeUp)); err == nil {
					break
				}
				select {
				case <-env.Context().Done():
					return nil, env.Context().Err()
				case <-time.After(20 * time.Millisecond):
				}
			}
			env.ClaimPrefix("/api", "/apis")
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[]}`)
			}), nil
		},
	}
}

// What cannot be an upgrade is refused with the reason, and core goes on as it was.
func TestUpgradeBadInput(t *testing.T) {
	t.Parallel()
	c := catena(t, cluster.Options{})
	binary := func(release string) string {
		dir := filepath.Join(t.TempDir(), release)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := linkPlugins(dir, "core"); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, "catena-stage-core")
	}
	command := func(args ...string) run { return runCatena(t, append(args, "--data-dir", c.DataDir())...) }
	before := c.StageProcesses()
	unchanged := func(what string) {
		t.Helper()
		eventually(t, what+": the processes of before and no other", func() bool { return maps.Equal(c.StageProcesses(), before) })
		kubectl(t, c.Server, "get", "namespaces")
		if v := kubectl(t, c.Server, "version"); !strings.Contains(v, "Server Version: v1.37.") {
			t.Errorf("%s: %s", what, v)
		}
	}

	far, unlike, slow := binary("v1.35.4"), binary("v1.36.9"), binary(slowRelease)
	for _, tc := range []struct {
		what, binary string
		want         []string
	}{
		{"two minors away", far, []string{"release: v1.35.4: is not a neighbour of v1.37.", "release: host: is of v1.37.", "release: stage extensions: is of v1.37."}},
		{"flags it does not know, and objects of a newer release", unlike, []string{
			"setting: apiserver.authorization-mode: the new release does not know the flag",
			"unreadable: Namespace: ", "objects are stored as v1, which v1.36.9 cannot read, such as /registry/namespaces/",
		}},
	} {
		plan := command("upgrade", "plan", "core", "--binary", tc.binary)
		for _, want := range tc.want {
			if plan.code != 2 || !strings.Contains(plan.stdout, want) {
				t.Errorf("%s: exit code %d, %q is not in\n%s%s", tc.what, plan.code, want, plan.stdout, plan.stderr)
			}
		}
		swap := command("swap", "core", "--binary", tc.binary)
		_, detail, _ := strings.Cut(tc.want[0], ": ")
		if swap.code != 1 || !strings.Contains(swap.stderr, detail) || !strings.Contains(swap.stderr, "--allow NAME") {
			t.Errorf("%s: exit code %d\n%s%s", tc.what, swap.code, swap.stdout, swap.stderr)
		}
		unchanged(tc.what)
	}

	if r := command("upgrade", "plan", "core", "--binary", slow, "--timeout", "1s"); r.code != 1 || r.stderr != "catena: no plan within 1s (--timeout); nothing has moved\n" {
		t.Errorf("a plan that takes longer than its time: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	unchanged("a plan that takes longer than its time")

	// A process comes up slowly, and what may not be beside that is refused.
	mayComeUp := filepath.Join(filepath.Dir(slow), comeUp)
	comesUp := func(words string, refused [][]string, first ...string) run {
		t.Helper()
		done := make(chan run, 1)
		go func() { done <- command(first...) }()
		eventually(t, "the process that is tried", func() bool { return len(c.StageProcesses()) > len(before) })
		for _, second := range refused {
			if r := command(second...); r.code != 1 || !strings.Contains(r.stderr, words+" is under way: try again") {
				t.Errorf("%v beside %v: exit code %d\n%s%s", second, first, r.code, r.stdout, r.stderr)
			}
		}
		if err := os.WriteFile(mayComeUp, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		return <-done
	}
	another := [][]string{
		{"upgrade", "plan", "core", "--binary", unlike}, {"upgrade", "plan", "extensions", "--binary", unlike},
		{"swap", "core", "--binary", unlike}, {"upgrade", "finalize", "core"}, {"shadow", "extensions", "--binary", unlike}, {"upgrade"},
	}
	if r := comesUp(`a plan of an upgrade of stage "core"`, another, "upgrade", "plan", "core", "--binary", slow); r.code != 2 || !strings.Contains(r.stdout, "→ "+slowRelease) {
		t.Errorf("the first of two plans: %+v", r)
	}
	unchanged("two at once")
	if err := os.Remove(mayComeUp); err != nil {
		t.Fatal(err)
	}
	another = append(another, []string{"swap", "core"}, []string{"swap", "extensions"})
	if r := comesUp(`the start of a shadow of stage "core"`, another, "shadow", "core", "--binary", slow); r.code != 0 {
		t.Errorf("the shadow: %+v", r)
	}
	if r := command("shadow", "stop"); r.code == 1 {
		t.Errorf("the end of the shadow: %+v", r)
	}
	unchanged("a shadow")
}
