package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// watchStatus runs "catena status --watch" until cancel is called.
func (l *life) watchStatus(t *testing.T, args ...string) (out *output, ended <-chan error, cancel func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	out = new(output)
	root := rootCommand("unknown")
	root.SetOut(out)
	root.SetErr(io.Discard)
	root.SetArgs(append([]string{"status", "--watch", "--data-dir", filepath.Join(l.dir, "data")}, args...))
	end := make(chan error, 1)
	go func() { end <- root.ExecuteContext(ctx) }()
	return out, end, cancel
}

// tables are the generations of the stage in each table that was printed.
func tables(text string) (generations []string) {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 3 && fields[0] == "one" {
			generations = append(generations, fields[3])
		}
	}
	return generations
}

// The status is printed at once, and again when a stage has changed, but not before.
func TestStatusIsWatched(t *testing.T) {
	t.Parallel()
	l := newLife(t, "one")
	l.chain(t, "", "one")
	l.start(t)
	l.untilSignal(t, "HasBeenReady")
	_, before := l.order(t)

	text, ended, stop := l.watchStatus(t)
	asJSON, endedJSON, stopJSON := l.watchStatus(t, "-o", "json")
	l.until(t, "first status", func() bool { return len(tables(text.String())) > 0 && asJSON.String() != "" })
	first := text.String()
	if got := tables(first); got[0] != before["one"] || !strings.HasPrefix(first, "STAGE") {
		t.Errorf("the first status is %q", first)
	}
	if out, err := l.command(t, "swap", "one"); err != nil {
		t.Fatal(out, err)
	}
	_, after := l.order(t)
	last := func() bool {
		all := tables(text.String())
		return all[len(all)-1] == after["one"] && strings.Contains(text.String(), "last swap of one")
	}
	l.until(t, "status after the swap", last)
	l.until(t, "end of the old process", func() bool { return len(l.processes()) == 1 })
	l.until(t, "the same as JSON", func() bool { return strings.Contains(asJSON.String(), after["one"]) })
	stop()
	stopJSON()
	for _, end := range []<-chan error{ended, endedJSON} {
		if err := <-end; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("a watch that was stopped: %v", err)
		}
	}
	var was json.RawMessage
	for decoder := json.NewDecoder(strings.NewReader(asJSON.String())); decoder.More(); {
		var now json.RawMessage
		if err := decoder.Decode(&now); err != nil {
			t.Fatalf("%v in %s", err, asJSON)
		}
		if bytes.Equal(now, was) {
			t.Errorf("printed twice: %s", now)
		}
		was = now
	}
}

// A host that ends ends the watch, with a word.
func TestStatusOfAHostThatEnds(t *testing.T) {
	t.Parallel()
	l := newLife(t, "one")
	l.chain(t, "", "one")
	l.start(t)
	l.untilSignal(t, "HasBeenReady")
	text, ended, _ := l.watchStatus(t)
	l.until(t, "first status", func() bool { return text.String() != "" })
	l.kill(t, syscall.SIGKILL)
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the watch ended without an error")
		}
		t.Log(err)
	case <-time.After(patienceOfTests):
		t.Error("the watch goes on")
	}
}
