package chaos

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// holdings is what the host holds.
type holdings struct {
	goroutines, descriptors, processes, sockets int
}

// holdingsOf counts what the host of a site holds.
func holdingsOf(ctx context.Context, s *site, c *clients) (h holdings, err error) {
	profile, err := c.kube.RESTClient().Get().AbsPath("/debug/pprof/goroutine").Param("debug", "1").DoRaw(ctx)
	if err != nil {
		return h, err
	}
	if _, err := fmt.Sscanf(string(profile), "goroutine profile: total %d", &h.goroutines); err != nil {
		return h, err
	}
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.Process().PID()))
	if err != nil {
		return h, err
	}
	h.descriptors = len(entries)
	h.processes = len(cluster.Children(s.Process().PID()))
	err = filepath.WalkDir(s.Dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type() == fs.ModeSocket {
			h.sockets++
		}
		return nil
	})
	return h, err
}

// slack is how many more a host may hold than before, for pools and the like.
const slack = 40

// awaitHoldings waits until the host holds no more than it did.
func awaitHoldings(ctx context.Context, s *site, c *clients, before holdings) (holdings, error) {
	var now holdings
	err := poll(ctx, func() error {
		var err error
		if now, err = holdingsOf(ctx, s, c); err != nil {
			return err
		}
		if now.processes > before.processes || now.sockets > before.sockets ||
			now.descriptors > before.descriptors+slack || now.goroutines > before.goroutines+slack {
			time.Sleep(time.Second)
			return fmt.Errorf("the host holds %+v, and held %+v before", now, before)
		}
		return nil
	})
	return now, err
}

// peakMemory returns the most bytes that the host of a site has held since it was executed.
func peakMemory(t *testing.T, s *site) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Process().PID()))
	if err != nil {
		t.Error(err)
		return 0
	}
	_, line, _ := strings.Cut(string(status), "VmHWM:")
	var kilobytes int
	if _, err := fmt.Sscan(line, &kilobytes); err != nil {
		t.Errorf("VmHWM of the host: %v", err)
	}
	return kilobytes << 10
}
