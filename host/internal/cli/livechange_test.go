package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/process/processtest"
)

// command runs a command for the host of a test.
func (l *life) command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, _, err := run(t, append(args, "--data-dir", filepath.Join(l.dir, "data"))...)
	return out, err
}

// chain writes a configuration with these stages, from head to tail, each with its own
// lines of YAML in braces.
func (l *life) chain(t *testing.T, more string, stages ...string) {
	t.Helper()
	text := "apiVersion: catena.dev/v1alpha1\nkind: HostConfiguration\npluginDirs: [" + l.plugins + "]\n" +
		"log: {format: json, stageLevel: debug}\napiserver: {" + lifeFlags + "}\n" + more + "\nstages:\n"
	for i, stage := range stages {
		name, config, _ := strings.Cut(stage, " ")
		text += fmt.Sprintf("  %s:\n    lock: off\n    isolation: off\n    env: {%s: '%s:%s'}\n    drainSpread: 0s\n", name, envLife, name, l.notes)
		if config != "" {
			text += "    " + config + "\n"
		}
		if i+1 < len(stages) {
			next, _, _ := strings.Cut(stages[i+1], " ")
			text += "    delegate: " + next + "\n"
		}
	}
	next := l.config + ".next"
	if err := errors.Join(os.WriteFile(next, []byte(text), 0o600), os.Rename(next, l.config)); err != nil {
		t.Fatal(err)
	}
}

// status asks the host where it stands.
func (l *life) status(t *testing.T) admin.Status {
	t.Helper()
	out, err := l.command(t, "status", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var all admin.Status
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return all
}

// order is the chain with the generation of each stage.
func (l *life) order(t *testing.T) (names []string, generations map[string]string) {
	t.Helper()
	generations = map[string]string{}
	for _, st := range l.status(t).Stages {
		names = append(names, st.Stage)
		generations[st.Stage] = st.Generation
	}
	return names, generations
}

// A host is started and its configuration changed, step by step.
func TestReloadOfARunningHost(t *testing.T) {
	t.Parallel()
	l := newLife(t, "one", "two", "three")
	l.chain(t, "", "one", "two")
	l.start(t)
	l.untilSignal(t, "HasBeenReady")
	_, before := l.order(t)

	reload := func(want string) {
		t.Helper()
		out, err := l.command(t, "reload")
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("reload: %q, %v; want %q\n%s", out, err, want, l.dump())
		}
	}
	refused := func(want string) {
		t.Helper()
		_, err := l.command(t, "reload")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("reload: %v, want %q", err, want)
		}
		all := l.status(t)
		if all.LastReload == nil || !strings.Contains(all.LastReload.Error, want) {
			t.Errorf("status: %+v, want %q", all.LastReload, want)
		}
	}
	reload("configuration applied, nothing has changed")

	l.chain(t, "log: {level: debug}", "one", "two")
	refused("log: set a second time")
	l.chain(t, "holdTimeout: 3s\nstore: {prefix: /other, quotaBytes: 5}", "one", "two")
	refused("only a restart of the host applies store.prefix, store.quotaBytes")
	l.chain(t, "", "one", "four", "two")
	refused(`stage "four": no binary catena-stage-four in`)
	l.chain(t, "", "one config: {greting: x}", "two")
	refused("greting")
	if names, now := l.order(t); !slices.Equal(names, []string{"one", "two"}) || now["one"] != before["one"] || now["two"] != before["two"] {
		t.Errorf("refused changes have changed something: %v, %v were %v", names, now, before)
	}

	l.chain(t, "watchPlugins: true\nholdTimeout: 3s\nholdRequests: 7", "one startTimeout: 2m", "two")
	reload("set holdRequests, holdTimeout, stages.one.startTimeout, watchPlugins")
	l.chain(t, "watchPlugins: true\nholdTimeout: 3s\nholdRequests: 7", "one startTimeout: 2m", "two config: {greeting: hi}")
	reload("applied: swapped two")
	_, now := l.order(t)
	if now["two"] == before["two"] {
		t.Error("stage two has its old process")
	}
	l.chain(t, "", "three", "one", "two")
	reload("applied: added three")
	l.chain(t, "", "two", "three")
	reload("removed one")
	if names, _ := l.order(t); !slices.Equal(names, []string{"two", "three"}) {
		t.Errorf("the chain is %v", names)
	}
	// A disabled stage leaves the chain with its process, and comes back with a new one.
	l.chain(t, "", "two", "one disabled: true", "three")
	reload("configuration applied, nothing has changed")
	l.chain(t, "", "two disabled: true", "three")
	reload("removed two")
	if names, _ := l.order(t); !slices.Equal(names, []string{"three"}) {
		t.Errorf("the chain without the disabled stage is %v", names)
	}
	l.chain(t, "", "two", "three")
	reload("added two")
	if names, _ := l.order(t); !slices.Equal(names, []string{"two", "three"}) {
		t.Errorf("the chain with the stage enabled again is %v", names)
	}
	// The others are told by signal.
	l.chain(t, "", "three", "two")
	l.kill(t, syscall.SIGHUP)
	l.until(t, "reordering", func() bool { names, _ := l.order(t); return slices.Equal(names, []string{"three", "two"}) })
	l.kill(t, syscall.SIGTERM)
	l.untilEnd(t)
	if code := l.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d: %s", code, l.dump())
	}
}

// A stage follows its binary, and goes on when that is none.
func TestAChangedPluginIsSwappedIn(t *testing.T) {
	t.Parallel()
	l := newLife(t, "one")
	l.chain(t, "watchPlugins: true", "one")
	l.start(t)
	l.untilSignal(t, "HasBeenReady")
	_, before := l.order(t)

	path := filepath.Join(l.plugins, "catena-stage-one")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	put := func(b []byte) {
		t.Helper()
		if err := errors.Join(processtest.WriteProgram(path+".next", b), os.Rename(path+".next", path)); err != nil {
			t.Fatal(err)
		}
	}
	unused := func() int {
		return len(l.logged("catena", "changed plugin is not used, the stage goes on with the old one", "stage"))
	}
	put([]byte("#!/bin/sh\nexit 3\n"))
	l.until(t, "message", func() bool { return unused() == 1 })
	put(whole[:len(whole)/2])
	l.until(t, "message", func() bool { return unused() == 2 })
	if _, now := l.order(t); now["one"] != before["one"] {
		t.Error("a plugin that is none was used")
	}
	put(append(slices.Clone(whole), "more"...))
	l.until(t, "swap", func() bool { _, now := l.order(t); return now["one"] != before["one"] })
	l.until(t, "end of the old process", func() bool { return len(l.processes()) == 1 })
	if n := unused(); n != 2 {
		t.Errorf("%d messages", n)
	}
	_, before = l.order(t)
	out, err := l.command(t, "swap", "one", "--rollback-on", "errors=50%,health", "--probation", "200ms")
	if err != nil || !strings.Contains(out, "on probation for 200ms") {
		t.Errorf("swap: %q, %v", out, err)
	}
	l.until(t, "end of the probation", func() bool {
		st := l.status(t).Stages[0]
		return st.Probation == nil && st.LastSwap != nil && st.LastSwap.Result == "done" && st.Generation != before["one"]
	})
}
