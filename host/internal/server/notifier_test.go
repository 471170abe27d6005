package server

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/callers"
	"github.com/catena-dev/catena/host/internal/faults"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/host/internal/systemd"
)

// noStages is a supervisor without stages.
func noStages() *supervisor.Supervisor {
	s, err := supervisor.New(callers.New(nil), supervisor.Options{Log: hclog.NewNullLogger()})
	if err != nil {
		panic(err)
	}
	return s
}

// newTestNotifier has a systemd whose messages come one by one, and a supervisor without stages.
func newTestNotifier(t *testing.T) (n *notifier, next func() string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	service, err := systemd.FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	n = newNotifier(service, hclog.NewNullLogger(), noStages(), &faults.Host{})
	return n, func() string {
		t.Helper()
		buf := make([]byte, 4096)
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		size, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:size])
	}
}

// What systemd is told keeps to the order that it relies on, whatever comes at the same time.
func TestNotifierPhases(t *testing.T) {
	n, next := newTestNotifier(t)
	done := n.reload() // of a server that is not ready yet
	done()
	n.become(serving, systemd.Ready)
	if got := next(); got != "READY=1" {
		t.Errorf("got %q; a reload made the server ready, or nothing did", got)
	}
	done = n.reload()
	if got := next(); got[:11] != "RELOADING=1" {
		t.Errorf("reload: %q", got)
	}
	n.stop()
	done()
	n.become(serving, systemd.Ready)
	n.notify("END=1")
	if got := next(); got != "STOPPING=1" {
		t.Errorf("stop: %q", got)
	}
	if got := next(); got != "END=1" {
		t.Errorf("after the stop: %q", got)
	}
}

// While another program takes the place of the host, its service neither stops nor dies for systemd.
func TestNotifierHandsOver(t *testing.T) {
	n, next := newTestNotifier(t)
	n.service.Watchdog = time.Second
	n.become(serving, systemd.Ready)
	n.handOver()
	n.stop()
	n.takenOver()
	n.notify("END=1")
	for _, want := range []string{"READY=1", "RELOADING=1", "WATCHDOG_USEC=360000000", "WATCHDOG_USEC=1000000", "END=1"} {
		if got := next(); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestStatusLine(t *testing.T) {
	t.Parallel()
	stages := []supervisor.Status{{Stage: "aggregator", State: "serving"}, {Stage: "core", State: "backing off"}, {Stage: "extensions", State: supervisor.Down}}
	for want, n := range map[string]int{
		"serving: aggregator":                            1,
		"serving: aggregator, core; core is backing off": 2,
		"serving: aggregator, core, extensions; core is backing off; extensions is down": 3,
	} {
		if got := statusLine(serving, stages[:n], &faults.Host{}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// The watchdog is fed twice in its time while the host responds, and not at all while it does not.
func TestKeepAlive(t *testing.T) {
	n, next := newTestNotifier(t)
	n.service.Watchdog = 20 * time.Second
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		begun, pings := time.Now(), 0
		n.keepAlive(ctx, func(ctx context.Context) error {
			pings++
			switch {
			case pings == 6:
				cancel()
				return ctx.Err()
			case pings == 3:
				<-ctx.Done() // the host hangs, for all of its time
				return ctx.Err()
			case pings > 3:
				return errors.New("no response")
			}
			return nil
		})
		if took := time.Since(begun); took != 50*time.Second {
			t.Errorf("6 requests took %s, want one every 10s", took)
		}
	})
	n.notify("END=1")
	for _, want := range []string{"WATCHDOG=1", "WATCHDOG=1", "END=1"} {
		if got := next(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
