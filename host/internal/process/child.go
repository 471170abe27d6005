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

	"github.com/catena-dev/catena/host/internal/cgroup"
)

// child is one operating system process that leads a process group of its own.
type child struct {
	// done is closed once the process has ended and its group was killed.
	done chan struct{}
	// group, if not nil, has what the process has started, also in other process groups. It is set before start.
	group *cgroup.Group

	mu      sync.Mutex
	process *os.Process      // nil before start
	state   *os.ProcessState // nil before done, and if the process was never started
	at      time.Time        // of the end
	killed  bool             // kill was called while the process could run
	why     string           // of the kill; "" if unknown
	memory  bool             // the kernel killed processes of the group, which was at its limit of memory
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
	c.killAll()
	memory := c.group.Reached().Memory > 0
	state, err := c.process.Wait()
	if err != nil {
		state = new(os.ProcessState)
	}
	c.state, c.at, c.memory = state, at, memory
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
		c.killAll()
	}
}

// killAll kills the group of the process, and what it has started in others. The caller holds
// the lock, and the process is not reaped. Errors are ignored: the only ones are that all have ended.
func (c *child) killAll() {
	_ = syscall.Kill(-c.process.Pid, syscall.SIGKILL)
	_ = c.group.Kill()
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

// ending is how and when a process ended.
type ending struct {
	state  *os.ProcessState
	killed bool   // by kill
	why    string // of the kill
	memory bool   // the kernel killed it at its limit of memory
	at     time.Time
}

// ended returns how the process ended. The state is nil unless done is closed after a
// successful start.
func (c *child) ended() ending {
	c.mu.Lock()
	defer c.mu.Unlock()
	return ending{state: c.state, killed: c.killed, why: c.why, memory: c.memory && !c.killed, at: c.at}
}
