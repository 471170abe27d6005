package cli

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/catena-dev/catena/host/internal/process/processtest"
)

// TestSwapCutOff ends the host while a command waits for a swap that hangs.
func TestSwapCutOff(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		signal syscall.Signal
		want   string
	}{
		"in order": {syscall.SIGTERM, "the server is stopping"},
		"killed":   {syscall.SIGKILL, "the host has ended before the end of the swap: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLife(t, "one")
			l.chain(t, "", "one")
			l.start(t)
			l.untilSignal(t, "HasBeenReady")
			script, begun := filepath.Join(l.dir, "script"), filepath.Join(l.dir, "begun")
			if err := processtest.WriteProgram(script, []byte("#!/bin/sh\n: >"+begun+"\nexec sleep 1000\n")); err != nil {
				t.Fatal(err)
			}
			swap := make(chan error, 1)
			go func() {
				_, err := l.command(t, "swap", "one", "--binary", script)
				swap <- err
			}()
			l.until(t, "swap", func() bool { _, err := os.Stat(begun); return err == nil })
			l.kill(t, tc.signal)
			if err := <-swap; err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			} else {
				t.Log(err)
			}
			l.untilEnd(t)
		})
	}
}

// A swap that does not even begin is in the status.
func TestRefusedSwapIsInTheStatus(t *testing.T) {
	t.Parallel()
	l := newLife(t, "one")
	l.chain(t, "", "one")
	l.start(t)
	l.untilSignal(t, "HasBeenReady")
	const want = "/nowhere: no such file"
	if _, err := l.command(t, "swap", "one", "--binary", "/nowhere"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	if last := l.status(t).Stages[0].LastSwap; last == nil || last.Result != "failed" || !strings.Contains(last.Reason, want) {
		t.Errorf("last swap %+v", last)
	}
}
