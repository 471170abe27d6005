package config

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Limits are the limits of each process of a stage, as they are written. What is empty or 0
// has no limit.
type Limits struct {
	Memory     string `koanf:"memory"`
	MemorySoft string `koanf:"memorySoft"`
	OpenFiles  int64  `koanf:"openFiles"`
	CPU        string `koanf:"cpu"`
	PIDs       int64  `koanf:"pids"`
}

// The least values of limits: with less, no process comes up.
const (
	leastMemory    = 1 << 20
	leastOpenFiles = 64
	leastPIDs      = 64
	// leastCPU and mostCPU are in thousandths of a processor.
	leastCPU = 10
	mostCPU  = 1000 * 10000
)

// softShare is the part of memory, in percent, that memorySoft is if it is not set.
const softShare = 80

// MemoryBytes returns the hard limit of memory, 0 for none.
func (l Limits) MemoryBytes() int64 { return valueOf(l.Memory) }

// MemorySoftBytes returns the soft limit of memory, 0 for none.
func (l Limits) MemorySoftBytes() int64 {
	if l.MemorySoft == "" {
		return valueOf(l.Memory) / 100 * softShare
	}
	return valueOf(l.MemorySoft)
}

// MilliCPU returns the limit of processors in thousandths, 0 for none.
func (l Limits) MilliCPU() int64 {
	q, err := resource.ParseQuantity(l.CPU)
	if err != nil {
		return 0
	}
	return q.MilliValue()
}

// valueOf returns 0 for what is no quantity: the key's check has reported that.
func valueOf(quantity string) int64 {
	q, err := resource.ParseQuantity(quantity)
	if err != nil {
		return 0
	}
	return q.Value()
}

// parseQuantity parses a quantity as Kubernetes writes them.
func parseQuantity(s string) (resource.Quantity, error) {
	q, err := resource.ParseQuantity(s)
	if err != nil {
		return q, fmt.Errorf("want a quantity such as 512Mi, have %q", s)
	}
	return q, nil
}

func memory(v any) error {
	s, _ := v.(string)
	q, err := parseQuantity(s)
	switch {
	case err != nil:
		return err
	case strings.HasSuffix(s, "m"):
		return fmt.Errorf("%q is in thousandths of a byte; want a quantity such as %sM or %sMi", s,
			strings.TrimSuffix(s, "m"), strings.TrimSuffix(s, "m"))
	case q.CmpInt64(leastMemory) < 0:
		return fmt.Errorf("must be 1Mi or more, is %s", s)
	case q.CmpInt64(maxMemory) > 0:
		return fmt.Errorf("must be 8Ei or less, is %s", s)
	}
	return nil
}

func cpu(v any) error {
	s, _ := v.(string)
	q, err := resource.ParseQuantity(s)
	switch {
	case err != nil:
		return fmt.Errorf("want a number of processors such as 0.5 or 2, have %q", s)
	case q.Cmp(*resource.NewMilliQuantity(leastCPU, resource.DecimalSI)) < 0:
		return fmt.Errorf("must be 0.01 or more, is %s", s)
	case q.Cmp(*resource.NewMilliQuantity(mostCPU, resource.DecimalSI)) > 0:
		return fmt.Errorf("must be 10000 or less, is %s", s)
	}
	return nil
}

// maxMemory is the largest number of bytes that fits.
const maxMemory = 1<<63 - 1

func atLeast(least int64) func(any) error {
	return func(v any) error {
		if i, _ := v.(int64); i < least {
			return fmt.Errorf("must be %d or more, is %d", least, i)
		}
		return nil
	}
}

// check returns what is wrong with limits that are right by themselves, with the key that is
// to blame.
func (l Limits) check() (key string, err error) {
	if soft, hard := l.MemorySoftBytes(), l.MemoryBytes(); l.MemorySoft != "" && hard > 0 && soft > hard {
		return "memorySoft", errors.New("must not be more than limits.memory, which is " + l.Memory)
	}
	return "", nil
}
