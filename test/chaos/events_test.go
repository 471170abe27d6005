package chaos

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// event is something that happens to a stage, or to the chain.
type event struct {
	kind  string
	class class
	// possible reports whether it can happen to the stage now; nil means always.
	possible func(s *site, stage string) bool
	do       func(ctx context.Context, s *site, stage string) error
}

// class says what an event excuses.
type class int

const (
	planned     class = iota // no request may fail; streams end at drainTimeout
	crash                    // requests in flight may fail
	crashInSwap              // both
	restart                  // no request may fail; all streams end
)

// failsRequests reports whether requests in flight may fail.
func (c class) failsRequests() bool { return c == crash || c == crashInSwap }

func events() []event {
	return append([]event{
		{"swap", planned, inChain, swap},
		{"new binary", planned, inChain, newBinary},
		{"stage added", planned, out, func(ctx context.Context, s *site, stage string) error {
			return s.apply(ctx, func(c *chain) { c.order = slices.Insert(c.order, s.random.IntN(len(c.order)+1), stage) })
		}},
		{"config changed", planned, in(passers), func(ctx context.Context, s *site, _ string) error {
			return s.apply(ctx, func(c *chain) { c.greeting++ })
		}},
		{"stage moved", planned, in(passers), func(ctx context.Context, s *site, stage string) error {
			return s.apply(ctx, func(c *chain) {
				i := slices.Index(c.order, stage)
				c.order = slices.Delete(c.order, i, i+1)
				c.order = slices.Insert(c.order, (i+1+s.random.IntN(len(c.order)))%(len(c.order)+1), stage)
			})
		}},
		{"standby on", planned, withoutStandby, func(ctx context.Context, s *site, stage string) error {
			return s.apply(ctx, func(c *chain) { c.standby = append(c.standby, stage) })
		}},
		{"killed, standby", crash, withStandby, signal(syscall.SIGKILL)},
		{"standby off", planned, withStandby, func(ctx context.Context, s *site, stage string) error {
			return s.apply(ctx, func(c *chain) {
				c.standby = slices.DeleteFunc(c.standby, func(n string) bool { return n == stage })
			})
		}},
		{"killed", crash, withoutStandby, signal(syscall.SIGKILL)},
		{"suspended", crash, inChain, signal(syscall.SIGSTOP)},
		{"bad config", planned, nil, badConfig},
		{"bad binary", planned, inChain, badBinary},
		{"swap and reload", planned, inChain, swapAndReload},
		{"host upgraded", restart, nil, func(ctx context.Context, s *site, _ string) error {
			_, err := s.Command(ctx, "upgrade")
			return err
		}},
		{"stage removed", planned, in(passers), func(ctx context.Context, s *site, stage string) error {
			return s.apply(ctx, func(c *chain) {
				drop := func(n string) bool { return n == stage }
				c.order, c.standby = slices.DeleteFunc(c.order, drop), slices.DeleteFunc(c.standby, drop)
			})
		}},
	}, append(overlaps(), canaries()...)...)
}

func inChain(s *site, stage string) bool { return slices.Contains(s.chain.order, stage) }
func out(s *site, stage string) bool     { return !inChain(s, stage) }

// in reports whether a stage is one of those that are named, and in the chain.
func in(names []string) func(*site, string) bool {
	return func(s *site, stage string) bool { return slices.Contains(names, stage) && inChain(s, stage) }
}

func withStandby(s *site, stage string) bool { return slices.Contains(s.chain.standby, stage) }
func withoutStandby(s *site, stage string) bool {
	return inChain(s, stage) && !withStandby(s, stage)
}

// signal sends a signal to the process that serves, and waits until another one does.
func signal(sig syscall.Signal) func(context.Context, *site, string) error {
	return func(ctx context.Context, s *site, stage string) error {
		pids, err := s.pids(ctx)
		if err != nil {
			return err
		}
		if err := syscall.Kill(pids[stage], sig); err != nil {
			return err
		}
		return s.awaitOther(ctx, stage, pids[stage])
	}
}

// awaitOther waits until a process other than before serves.
func (s *site) awaitOther(ctx context.Context, stage string, before int) error {
	return poll(ctx, func() error {
		now, err := s.pids(ctx)
		if err == nil && (now[stage] == before || now[stage] == 0) {
			err = fmt.Errorf("process %d of stage %s has not been replaced", before, stage)
		}
		return err
	})
}

// newBinary replaces a plugin and waits for the swap.
func newBinary(ctx context.Context, s *site, stage string) error {
	before, err := s.pids(ctx)
	if err == nil {
		err = s.replaceBinary(stage, true)
	}
	if err != nil {
		return err
	}
	return s.awaitOther(ctx, stage, before[stage])
}

// badConfig makes the host read configurations that it must refuse.
func badConfig(ctx context.Context, s *site, _ string) error {
	good := s.chain.String()
	last := s.chain.order[len(s.chain.order)-1]
	broken := s.chain.clone()
	broken.order = append(slices.DeleteFunc(broken.order, func(n string) bool { return n == passers[0] }), passers[0])
	for _, c := range []struct{ what, text string }{
		{"no YAML", "stages: ["},
		{"an unknown key", good + "    colour: red\n"},
		{"an unknown stage", strings.Replace(good, "stages:\n", "stages:\n  nobody: {delegate: "+s.chain.order[0]+"}\n", 1)},
		{"a cycle", good + "    delegate: " + s.chain.order[0] + "\n"},
		{"what needs a stop", "holdTimeout: 3s\nstore: {endpoints: [http://127.0.0.1:1]}\n" + good},
		{"a broken stage", strings.ReplaceAll(broken.String(), "config: {", "config: {broken: true, ")},
	} {
		if err := s.write(c.text); err != nil {
			return err
		}
		if err := s.unharmed(ctx, "reload"); err != nil {
			return fmt.Errorf("configuration with %s (%s): %w", c.what, last, err)
		}
	}
	return s.write(good)
}

// badBinary requests swaps that must fail.
func badBinary(ctx context.Context, s *site, stage string) error {
	text := filepath.Join(s.plugins, "text")
	if err := os.WriteFile(text, []byte("no program"), 0o755); err != nil {
		return err
	}
	for _, path := range []string{"/no/such/binary", text, "/bin/true", "/bin/echo"} {
		if err := s.unharmed(ctx, "swap", stage, "--binary", path); err != nil {
			return fmt.Errorf("binary %s: %w", path, err)
		}
	}
	return nil
}

// unharmed runs a command that must fail and change nothing.
func (s *site) unharmed(ctx context.Context, args ...string) error {
	before, err := s.pids(ctx)
	if err != nil {
		return err
	}
	if out, err := s.Command(ctx, args...); err == nil {
		return fmt.Errorf("is accepted: %s", out)
	}
	after, err := s.pids(ctx)
	if err == nil && !maps.Equal(before, after) {
		err = fmt.Errorf("the processes were %v and are %v", before, after)
	}
	return err
}

// swapAndReload changes the chain twice at the same time: one change waits, or is refused.
func swapAndReload(ctx context.Context, s *site, stage string) error {
	swapped := make(chan error, 1)
	go func() {
		_, err := s.Command(ctx, "swap", stage)
		swapped <- err
	}()
	err := s.apply(ctx, func(c *chain) { c.greeting++ })
	for _, err := range []error{err, <-swapped} {
		if err != nil && !strings.Contains(err.Error(), "under way") && !strings.Contains(err.Error(), "busy") {
			return err
		}
	}
	return s.apply(ctx, func(*chain) {})
}

// poll repeats a function until it returns no error.
func poll(ctx context.Context, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, recovery)
	defer cancel()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", recovery, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
