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

// A transcript of each life that a generation can have, and of steps that it
// cannot take.
func TestMachineTranscripts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		steps []State
		want  string
	}{
		{"planned end", []State{Configuring, Preparing, Serving, Draining, Stopped},
			"starting→configuring preparing serving draining stopped"},
		{"crash while serving", []State{Configuring, Preparing, Serving, Failed},
			"starting→configuring preparing serving failed"},
		{"crash while draining", []State{Configuring, Preparing, Serving, Draining, Failed},
			"starting→configuring preparing serving draining failed"},
		{"takeover", []State{Configuring, Preparing, StandingBy, Serving, Draining, Stopped},
			"starting→configuring preparing standby serving draining stopped"},
		{"standby that is not needed", []State{Configuring, Preparing, StandingBy, Stopped},
			"starting→configuring preparing standby stopped"},
		{"no standing by after serving", []State{Configuring, Preparing, Serving, StandingBy},
			"starting→configuring preparing serving !standby"},
		{"stop during start", []State{Configuring, Stopped}, "starting→configuring stopped"},
		{"no way back", []State{Configuring, Starting}, "starting→configuring !starting"},
		{"no step is skipped", []State{Serving}, "starting→!serving"},
		{"nothing to drain yet", []State{Configuring, Draining}, "starting→configuring !draining"},
		{"crash with a restart to come", []State{Configuring, Preparing, Serving, Failed, BackingOff},
			"starting→configuring preparing serving failed backing off"},
		{"no restart of what is well", []State{Configuring, Preparing, Serving, BackingOff},
			"starting→configuring preparing serving !backing off"},
		{"no restart after a planned end", []State{Configuring, Stopped, BackingOff},
			"starting→configuring stopped !backing off"},
		{"a restart is another generation", []State{Failed, BackingOff, Starting, Failed},
			"starting→failed backing off !starting !failed"},
		{"an end is an end", []State{Failed, Stopped}, "starting→failed !stopped"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var observed []string
			m := NewMachine(time.Now, func(tr Transition) { observed = append(observed, tr.To.String()) })
			for _, s := range tc.steps {
				before := m.State()
				if err := m.To(s, ""); err != nil {
					observed = append(observed, "!"+s.String())
					if m.State() != before {
						t.Errorf("refused step to %s changed the state", s)
					}
				}
			}
			if got := Starting.String() + "→" + strings.Join(observed, " "); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

type link struct {
	name string
	log  *[]string
	fail string
}

func (l link) Name() string { return l.name }

func (l link) Configure(_ context.Context, behind []Report[string]) (string, error) {
	var names []string
	for _, b := range behind {
		names = append(names, b.Report)
	}
	*l.log = append(*l.log, fmt.Sprintf("configure %s behind=%v", l.name, names))
	if l.fail == "configure" {
		return "", fmt.Errorf("stage %q: configure: boom", l.name)
	}
	return "paths of " + l.name, nil
}

func (l link) PrepareRun(context.Context) error {
	*l.log = append(*l.log, "prepare "+l.name)
	if l.fail == "prepare" {
		return fmt.Errorf("stage %q: prepare: boom", l.name)
	}
	return nil
}

func TestBuildGoesFromTailToHead(t *testing.T) {
	t.Parallel()
	var log []string
	chain := []Link[string]{link{"a", &log, ""}, link{"b", &log, ""}, link{"c", &log, ""}}
	if err := Build(t.Context(), chain); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"configure c behind=[]", "configure b behind=[paths of c]", "configure a behind=[paths of b paths of c]",
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
		err := Build(t.Context(), []Link[string]{link{"a", &log, ""}, link{"b", &log, step}, link{"c", &log, ""}})
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
	err := RunPreShutdown(t.Context(), []Hook{
		{"core", "hangs", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
		{"core", "fails", func(context.Context) error { return errors.New("boom") }},
		{"aggregator", "fine", func(context.Context) error { close(ran); return nil }},
	}, 50*time.Millisecond)
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
