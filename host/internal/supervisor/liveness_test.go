package supervisor

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/host/internal/process"
)

// TestDeadlockedStage has a stage that answers calls, and whose check of /livez does not
// come back. One whose check fails is left alone.
func TestDeadlockedStage(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	f := ready(t, func(o *Options) {
		o.Chain[1].LivenessTimeout, o.Chain[2].LivenessTimeout = 4*time.Second, 4*time.Second
		o.Chain[1].Config = map[string]any{"log": o.Chain[1].Config["log"], "stuck": file}
		o.Chain[2].Config = map[string]any{"log": o.Chain[2].Config["log"], "sick": file, "sickLivez": true}
	})
	stuck, sick := f.pid("b"), f.pid("c")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stage is killed", func() bool { return !running(stuck) })
	if f.pid("c") != sick || !running(sick) {
		t.Error("the stage whose check failed was killed")
	}
	removeFile(t, file)
	eventually(t, "another process serves", func() bool {
		body, err := f.get("b")
		return err == nil && !strings.HasPrefix(body, fmt.Sprint(stuck, " "))
	})
}

func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// TestFullBacklog probes a stage that answers calls and takes no connections.
func TestFullBacklog(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	g := f.chain()[1].generation()
	if err := g.probeOnce(t.Context(), patience); err != nil {
		t.Fatal(err)
	}
	l, err := process.NewListener(filepath.Dir(g.listener.Path()), "full", "0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	fill(t, l.Path())
	silent := &generation{proc: g.proc, prepared: g.prepared, listener: l}
	if err := silent.probeOnce(t.Context(), time.Second); err == nil {
		t.Error("a stage that takes no connection is taken for alive")
	}
}

// fill makes connections to a socket that nobody accepts from, until it takes no more.
func fill(t *testing.T, socket string) {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		c, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		cancel()
		if err != nil {
			return
		}
		t.Cleanup(func() { c.Close() })
	}
}
