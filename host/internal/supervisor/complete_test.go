package supervisor

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/catena-dev/catena/sdk"
)

// find makes a test stage claim everything until a file exists, like one that has to
// find out what it serves.
func find(env *sdk.Env, file string) {
	env.SetClaims(sdk.Prefix("/"))
	complete := make(chan struct{})
	env.MuxComplete("found", complete)
	go func() {
		for {
			if _, err := os.Stat(file); err == nil {
				env.SetClaims(sdk.Exact("/" + env.Name))
				close(complete)
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
}

// claims are the paths that the chain has been told of stage b.
func (f *fixture) claims() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var paths []string
	for _, c := range f.published[1].Claims {
		paths = append(paths, c.GetPath())
	}
	return paths
}

func (f *fixture) claimsOnly(path string) bool {
	c := f.claims()
	return len(c) == 1 && c[0] == path
}

// A restarted stage keeps the claims of the one before until it knows its own, so that
// it does not keep from others what is theirs.
func TestRestartedStageInheritsClaimsUntilItIsComplete(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "complete")
	f, err := start(t, func(o *options) { o.Chain[1].Config["complete"] = file })
	if err != nil {
		t.Fatal(err)
	}
	f.RunPostStartHooks(func(err error) { t.Error(err) })
	incomplete := func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.published[1].Incomplete
	}
	if incomplete() {
		t.Error("documents wait for the first start")
	}
	if !f.claimsOnly("/") || f.Incomplete() != "b" {
		t.Errorf("at the start, b claims %q, and incomplete is %q", f.claims(), f.Incomplete())
	}
	touch(t, file)
	eventually(t, "b claims its own", func() bool { return f.claimsOnly("/b") && f.Incomplete() == "" })

	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	old := f.pid("b")
	if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "b is back", func() bool { return f.pid("b") != old && f.Incomplete() == "b" })
	if !f.claimsOnly("/b") || !incomplete() {
		t.Errorf("after the restart, b claims %q, incomplete: %t", f.claims(), incomplete())
	}
	touch(t, file)
	eventually(t, "b is complete", func() bool { return f.claimsOnly("/b") && f.Incomplete() == "" && !incomplete() })
}

// A signal that the first generation of a stage did not live to give comes from the next.
func TestSignalOfALaterGenerationCompletesTheServer(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "complete")
	f, err := start(t, func(o *options) { o.Chain[1].Config["complete"] = file })
	if err != nil {
		t.Fatal(err)
	}
	signal := f.Complete()
	old := f.pid("b")
	if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "b is back", func() bool { return f.pid("b") != old })
	select {
	case <-signal:
		t.Fatal("signaled before it was")
	default:
	}
	touch(t, file)
	select {
	case <-signal:
	case <-time.After(patience):
		t.Error("the signal of the second generation is lost")
	}
}

func touch(t *testing.T, file string) {
	t.Helper()
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func removeFile(t *testing.T, file string) {
	t.Helper()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}
