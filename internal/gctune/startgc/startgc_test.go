package startgc

import (
	"math"
	"os"
	"os/exec"
	"runtime/metrics"
	"strings"
	"testing"
)

func gogc() uint64 {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func TestStart(t *testing.T) {
	before, after := uint64(percent), uint64(standard)
	if os.Getenv("GOGC") == "off" {
		before, after = math.MaxUint64, math.MaxUint64
	}
	if got := gogc(); got != before {
		t.Errorf("at the start, GOGC is %d, want %d", got, before)
	}
	End()
	if got := gogc(); got != after {
		t.Errorf("after the start, GOGC is %d, want %d", got, after)
	}
	if os.Getenv("GOGC") != "" {
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestStart$", "-test.v")
	cmd.Env = append(os.Environ(), "GOGC=off")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS: TestStart") {
		t.Errorf("with GOGC=off: %v\n%s", err, out)
	}
}
