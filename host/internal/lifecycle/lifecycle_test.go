package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

type member struct {
	name string
	log  *[]string
	fail string
}

func (m member) Name() string { return m.name }

func (m member) Configure(_ context.Context, downstream []Report[string]) (string, error) {
	var names []string
	for _, b := range downstream {
		names = append(names, b.Report)
	}
	*m.log = append(*m.log, fmt.Sprintf("configure %s downstream=%v", m.name, names))
	if m.fail == "configure" {
		return "", fmt.Errorf("stage %q: configure: boom", m.name)
	}
	return "paths of " + m.name, nil
}

func (m member) PrepareRun(context.Context) error {
	*m.log = append(*m.log, "prepare "+m.name)
	if m.fail == "prepare" {
		return fmt.Errorf("stage %q: prepare: boom", m.name)
	}
	return nil
}

func TestBuildGoesFromTailToHead(t *testing.T) {
	t.Parallel()
	var log []string
	chain := []Member[string]{member{"a", &log, ""}, member{"b", &log, ""}, member{"c", &log, ""}}
	if err := Build(t.Context(), chain); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"configure c downstream=[]", "configure b downstream=[paths of c]", "configure a downstream=[paths of b paths of c]",
		"prepare c", "prepare b", "prepare a",
	}
	if !slices.Equal(log, want) {
		t.Errorf("got  %q\nwant %q", log, want)
	}
}

func TestBuildStopsAtTheFirstError(t *testing.T) {
	t.Parallel()
	for step, want := range map[string]string{
		"configure": `stage "b": configure: boom`,
		"prepare":   `stage "b": prepare: boom`,
	} {
		var log []string
		err := Build(t.Context(), []Member[string]{member{"a", &log, ""}, member{"b", &log, step}, member{"c", &log, ""}})
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", step, err, want)
		}
		if slices.Contains(log, "prepare a") {
			t.Errorf("%s: went on after the error: %q", step, log)
		}
	}
}

func TestPostStartHooksRunAtOnce(t *testing.T) {
	t.Parallel()
	// Each hook waits for the other: run one after the other, they would hang.
	a, b := make(chan struct{}), make(chan struct{})
	meet := func(mine, other chan struct{}) func(context.Context) error {
		return func(ctx context.Context) error {
			close(mine)
			select {
			case <-other:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var mu sync.Mutex
	got := map[string]error{}
	RunPostStart(ctx, []Hook{
		{"core", "a", meet(a, b)}, {"core", "b", meet(b, a)},
		{"core", "bad", func(context.Context) error { return errors.New("no etcd") }},
	}, func(h Hook, err error) {
		mu.Lock()
		defer mu.Unlock()
		got[h.Name] = err
	})
	if got["a"] != nil || got["b"] != nil {
		t.Errorf("hooks did not run at once: %v", got)
	}
	if err := got["bad"]; err == nil || err.Error() != `post-start hook "bad" of stage "core" failed: no etcd` {
		t.Errorf("failed hook: %v", err)
	}
}

func TestPostStartHookForTheServersLifeIsNoFailure(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	running := make(chan struct{})
	go func() { <-running; cancel() }()
	RunPostStart(ctx, []Hook{{"core", "forever", func(ctx context.Context) error {
		close(running)
		<-ctx.Done()
		return ctx.Err()
	}}}, func(_ Hook, err error) {
		if err != nil {
			t.Errorf("a hook that ends with the server counts as failed: %v", err)
		}
	})
}

func TestPreShutdownHooksBlockNoOther(t *testing.T) {
	t.Parallel()
	ran := make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := RunPreShutdown(ctx, []Hook{
		{"core", "hangs", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
		{"core", "fails", func(context.Context) error { return errors.New("boom") }},
		{"aggregator", "fine", func(context.Context) error { close(ran); return nil }},
	})
	select {
	case <-ran:
	default:
		t.Error("a hook was kept from running")
	}
	for _, want := range []string{`"hangs" of stage "core"`, `"fails" of stage "core" failed: boom`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not mention %s", err, want)
		}
	}
}

func TestImportsOnlyTheStandardLibrary(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".")
	cmd.Env = append(os.Environ(), "GOFLAGS=")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(out)); len(got) != 1 {
		t.Errorf("lifecycle imports %v, want the standard library only", got)
	}
}
