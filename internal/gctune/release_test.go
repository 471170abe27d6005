package gctune

import (
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestWorth(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for name, tc := range map[string]struct {
		heap heap
		want bool
	}{
		"after a start":     {heap{live: 80 * mib, objects: 150 * mib, collected: true}, true},
		"little garbage":    {heap{live: 80 * mib, objects: 95 * mib, collected: true}, false},
		"free":              {heap{live: 80 * mib, objects: 80 * mib, free: 45 * mib, collected: true}, true},
		"a small program":   {heap{live: 2 * mib, objects: 4 * mib, free: mib, collected: true}, false},
		"swept meanwhile":   {heap{live: 80 * mib, objects: 70 * mib, free: 10 * mib, collected: true}, false},
		"without collector": {heap{live: 0, objects: 500 * mib}, false},
	} {
		if tc.heap.worth() != tc.want {
			t.Errorf("%s: not %v", name, tc.want)
		}
	}
}

// The values come from the runtime under the names that this package uses.
func TestReadHeap(t *testing.T) {
	if os.Getenv("GOGC") == "off" {
		if readHeap().collected {
			t.Error("GOGC=off is not noticed")
		}
		return
	}
	if h := readHeap(); h.objects == 0 || h.objects == math.MaxUint64 || !h.collected {
		t.Errorf("got %+v", h)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestReadHeap$", "-test.v")
	cmd.Env = append(os.Environ(), "GOGC=off")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS: TestReadHeap") {
		t.Errorf("with GOGC=off: %v\n%s", err, out)
	}
}
