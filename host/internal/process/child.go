package process

import (
	"cmp"
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// child is one operating system process that leads a process group of its own.
type child struct {
	// done is closed once the process has ended and its group was killed.
	done chan struct{}

	mu      sync.Mutex
	process *os.Process      // nil before start
	state   *os.ProcessState // nil before done, and if the process was never started
	at      time.Time        // of the end
	killed  bool             // kill was called while the process could run
	why     string           // of the kill; "" if nobody said
}

func newChild() *child { return &child{done: make(chan struct{})} }

var errKilledBeforeStart = errors.New("was killed before it started")

// start launches the program. It is called once; whatever it returns, done is
// closed in the end.
//
// One thread starts the process and then waits for it, because of the parent-death signal:
// the kernel sends it when the thread that has started the process ends.
func (c *child) start(ctx context.Context, path string, argv []string, attr *os.ProcAttr) error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(c.done)
		err := c.launch(ctx, path, argv, attr)
		started <- err
		if err == nil {
			c.reap()
		}
	}()
	return <-started
}

// launch retries for a second while the file is open for writing: a child that an unrelated
// writer forks holds it open until it executes its own program.
func (c *child) launch(ctx context.Context, path string, argv []string, attr *os.ProcAttr) error {
	for attempt := 0; ; attempt++ {
		err := c.launchOnce(path, argv, attr)
		if !errors.Is(err, syscall.ETXTBSY) || attempt == 20 {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

func (c *child) launchOnce(path string, argv []string, attr *os.ProcAttr) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.killed {
		return errKilledBeforeStart
	}
	process, err := os.StartProcess(path, argv, attr)
	c.process = process
	return err
}

// reap waits for the end of the process. It kills the group before it reaps the process:
// until then no other process, and so no other group, can get its id.
func (c *child) reap() {
	awaitExit(c.process)
	at := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	killGroup(c.process.Pid)
	state, err := c.process.Wait()
	if err != nil {
		state = new(os.ProcessState)
	}
	c.state, c.at = state, at
}

// kill ends the process and its group at once. It does not wait, and may be called
// at any time, more than once.
func (c *child) kill() { c.killBecause("") }

// killBecause is kill for a reason, of which the first counts.
func (c *child) killBecause(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != nil {
		return
	}
	c.killed, c.why = true, cmp.Or(c.why, why)
	if c.process != nil {
		killGroup(c.process.Pid)
	}
}

// pid is 0 before the start.
func (c *child) pid() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil {
		return 0
	}
	return c.process.Pid
}

// ended returns how and when the process ended, and whether by kill. The state is
// nil unless done is closed after a successful start.
func (c *child) ended() (state *os.ProcessState, killed bool, why string, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state, c.killed, c.why, c.at
}

// killGroup ignores errors: the only one for a group of this user is that it has ended.
func killGroup(pid int) {
	_ = syscall.Kill(-pid, syscall.SIGKILL)
}
