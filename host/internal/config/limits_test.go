package config

import "testing"

func TestLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limits       Limits
		memory, soft int64
	}{
		{limits: Limits{}},
		{limits: Limits{Memory: "512Mi"}, memory: 512 << 20, soft: 429496720},
		{limits: Limits{Memory: "512Mi", MemorySoft: "100M"}, memory: 512 << 20, soft: 100e6},
		{limits: Limits{MemorySoft: "1Gi"}, soft: 1 << 30},
	} {
		if got := c.limits.MemoryBytes(); got != c.memory {
			t.Errorf("%+v: memory is %d bytes, want %d", c.limits, got, c.memory)
		}
		if got := c.limits.MemorySoftBytes(); got != c.soft {
			t.Errorf("%+v: soft limit is %d bytes, want %d", c.limits, got, c.soft)
		}
	}
}

func TestMilliCPU(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"": 0, "0.5": 500, "2": 2000, "250m": 250, "0.01": 10, "10000": 10_000_000} {
		if got := (Limits{CPU: text}).MilliCPU(); got != want {
			t.Errorf("%q is %d thousandths of a processor, want %d", text, got, want)
		}
		if err := cpu(text); (err == nil) != (want > 0) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"0", "9m", "-1", "10001", "1e30"} {
		if cpu(text) == nil {
			t.Errorf("%q is no error", text)
		}
	}
}

// FuzzLimits looks for quantities that pass the checks and are no limit.
func FuzzLimits(f *testing.F) {
	for _, s := range []string{"512Mi", "512m", "1.5", "-1", "1e30", "9223372036854775807", "8Ei", "0.1n", "", "1Mi ", "+1G"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if memory(s) == nil {
			if got := (Limits{Memory: s}).MemoryBytes(); got < leastMemory {
				t.Errorf("memory %q is %d bytes", s, got)
			}
			if got := (Limits{Memory: s}).MemorySoftBytes(); got <= 0 {
				t.Errorf("the soft limit of memory %q is %d bytes", s, got)
			}
		}
	})
}
