package supervisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/catena-dev/catena/sdk"
)

// envRelease is a file with the release of Kubernetes as which a test stage describes itself.
const envRelease = "SUPERVISOR_TEST_RELEASE"

func describedRelease() func() sdk.Kubernetes {
	release, err := os.ReadFile(os.Getenv(envRelease))
	if err != nil {
		return nil
	}
	return func() sdk.Kubernetes { return sdk.Kubernetes{Release: string(release)} }
}

// A planned change asks about each stage of Kubernetes that it moves, before a hook of the new process runs; what is refused changes nothing. A restart is not
// asked for, and tells of another release.
func TestAdmit(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "release")
	describe := func(release string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(release), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	describe("v1.37.0")
	var mu sync.Mutex
	var asked []Move
	var hooks []string
	var f *fixture
	refusal := errors.New("it is in the way")
	f = ready(t, func(o *options) {
		o.Chain[1].Env[envRelease] = file
		o.Admit = func(_ context.Context, m Move) error {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, m)
			hooks = slices.DeleteFunc(f.events(t), func(e string) bool { return e != "post-start b" })
			if m.To.GetKubernetes().GetRelease() != "v1.37.0" && !slices.Contains(m.Allow, "it") {
				return refusal
			}
			return nil
		}
	})
	before := f.pid("b")
	moves := func() []Move {
		mu.Lock()
		defer mu.Unlock()
		all := asked
		asked = nil
		return all
	}

	describe("v1.36.3")
	_, err := f.Swap(t.Context(), "b", SwapOptions{})
	if !errors.Is(err, refusal) || f.pid("b") != before {
		t.Errorf("a swap: %v, process %d before, %d now", err, before, f.pid("b"))
	}
	if all := moves(); len(all) != 1 || all[0].Stage != "b" || all[0].From.GetKubernetes().GetRelease() != "v1.37.0" || all[0].Socket == "" {
		t.Errorf("it was asked %+v", all)
	}
	if len(hooks) != 1 || slices.Contains(f.kinds(SwapDone), "swap-done b") {
		t.Errorf("hooks of b had run when it was asked: %q", hooks)
	}
	specs := f.Specs()
	specs[1].Config = map[string]any{"log": f.log, "status": 200}
	if _, err := f.Apply(t.Context(), specs); !errors.Is(err, refusal) || !strings.HasPrefix(err.Error(), "nothing has changed: ") || f.pid("b") != before {
		t.Errorf("a change of the chain: %v, process %d before, %d now", err, before, f.pid("b"))
	}
	if _, err := f.Swap(t.Context(), "c", SwapOptions{}); err != nil {
		t.Errorf("a stage of no release: %v", err)
	}
	moves()

	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "b is back", func() bool { return f.pid("b") != before && f.pid("b") != 0 })
	eventually(t, "it is told", func() bool { return slices.Contains(f.kinds(ReleaseChanged), "release-changed b") })
	if all := moves(); len(all) > 0 {
		t.Errorf("a restart was asked for: %+v", all)
	}
	told := func() string { return f.Status()[1].OtherRelease }
	if got := told(); got != "restarted from another release (v1.37.0 → v1.36.3): its file was replaced" {
		t.Errorf("the status says %q", got)
	}
	describe("v1.35.1")
	if _, err := f.Swap(t.Context(), "b", SwapOptions{Allow: []string{"it"}}); err != nil {
		t.Errorf("what is allowed: %v", err)
	}
	if got := told(); got != "" {
		t.Errorf("after a swap the status says %q", got)
	}
	moves()
	if _, err := f.Apply(t.Context(), f.Specs()); err != nil || len(moves()) > 0 {
		t.Errorf("a reload that agrees with what has been allowed: %v", err)
	}
}
