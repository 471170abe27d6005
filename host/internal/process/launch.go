package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/panics"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// launch starts the program. dir is the directory of this process alone, env what
// go-plugin adds to the environment.
func (p *Process) launch(ctx context.Context, binary *os.File, dir string, env []string) error {
	var inherit inheritance
	defer inherit.close()
	inherit.add(os.Open(os.DevNull))
	p.streams.stdout = inherit.output()
	p.streams.stderr = inherit.output()
	listenerFD := inherit.add(p.spec.Listener.file(ctx))
	parentFD := inherit.lifeline(&p.lifeline)
	binaryFD := inherit.lend(binary)
	if inherit.err != nil {
		return fmt.Errorf("open what it inherits: %w", inherit.err)
	}
	path, err := launchPath(dir, p.spec.Binary, binaryFD)
	if err != nil {
		return fmt.Errorf("runtime directory: %w", err)
	}
	if path != p.spec.Binary {
		p.logs.link, p.logs.binary = []byte(path), []byte(p.spec.Binary)
	}
	env = append(env,
		stagev1.EnvListener+"="+strconv.Itoa(listenerFD),
		stagev1.EnvParent+"="+strconv.Itoa(parentFD),
		stagev1.EnvLogLevel+"="+logLevel(p.spec.Logger))
	attr := &os.ProcAttr{
		Env:   environment(p.spec, withDefaults(p.spec.Env, binary), env),
		Files: inherit.files,
		Sys:   processAttributes(),
	}
	if err := p.join(attr, &inherit); err != nil {
		return err
	}
	argv := []string{p.programName()}
	if path, argv, err = p.isolate(dir, path, argv, binaryFD, attr, &inherit); err != nil {
		return err
	}
	p.launcher.Begin()
	p.started = time.Now()
	if err := p.child.start(ctx, path, argv, attr); err != nil {
		p.launcher.Close()
		return launchProblem(err)
	}
	_ = p.limitFiles() // enforceLimits reports the error
	if err := endFirst(p.PID(), p.spec.Trusted); err != nil {
		p.spec.Logger.Debug("for want of memory, the kernel may end the host before the stage", "error", err)
	}
	return nil
}

// programName is what the program is called as. This program itself is the stage that it is called as.
func (p *Process) programName() string {
	if !IsOwn(p.spec.Binary) {
		return p.spec.Binary
	}
	return filepath.Join(filepath.Dir(p.spec.Binary), BinaryPrefix+p.spec.Name)
}

// isolate prepares the isolation of the process, and returns what to start.
func (p *Process) isolate(dir, path string, argv []string, binaryFD int, attr *os.ProcAttr, inherit *inheritance) (string, []string, error) {
	what := p.spec.Isolation
	what.Stage, what.Binary, what.Dir, what.Socket, what.OpenFiles = p.spec.Stage, p.spec.Binary, dir,
		p.spec.Listener.Path(), p.spec.OpenFiles
	launcher, err := p.spec.Machine.Prepare(what, attr.Env)
	if err != nil || launcher == nil {
		return path, argv, err
	}
	p.launcher = launcher
	if err := inherit.give(launcher.UID()); err != nil {
		return "", nil, fmt.Errorf("what it inherits: %w", err)
	}
	return launcher.Wrap(path, argv, binaryFD, attr)
}

// logLevel returns the least level of which the host logs a stage's lines.
func logLevel(logger hclog.Logger) string {
	level := logger.GetLevel()
	if level < hclog.Trace || level > hclog.Error {
		level = hclog.Error
	}
	return level.String()
}

// launchProblem adds advice to the kernel's error.
func launchProblem(err error) error {
	advice := ""
	switch {
	case errors.Is(err, errKilledBeforeStart):
		return err
	case errors.Is(err, syscall.ENOEXEC):
		advice = "it is no program that this machine can run"
	case errors.Is(err, fs.ErrNotExist):
		advice = "its interpreter or dynamic loader is missing on this machine"
	case errors.Is(err, fs.ErrPermission):
		advice = "is its file system mounted noexec, or does a security policy forbid it?"
	case errors.Is(err, syscall.ETXTBSY):
		advice = "it is open for writing; replace a binary by renaming a complete file over it"
	case errors.Is(err, syscall.EAGAIN):
		advice = "the limit of processes is reached (ulimit -u, or the cgroup's pids.max)"
	}
	var errno syscall.Errno
	errors.As(err, &errno)
	if advice == "" {
		return fmt.Errorf("cannot be started: %w", err)
	}
	return fmt.Errorf("cannot be started: %w: %s", errno, advice)
}

// inheritance collects the files that a process inherits: the index of a file is its
// descriptor in the process. After an error, all calls do nothing.
type inheritance struct {
	files []*os.File
	own   []*os.File // closed here once the process has them
	err   error
}

// add makes the process inherit a file, which close closes.
func (in *inheritance) add(f *os.File, err error) int {
	if in.err != nil {
		return -1
	}
	if err != nil {
		in.err = err
		return -1
	}
	in.own = append(in.own, f)
	return in.lend(f)
}

// lend makes the process inherit a file that stays open here.
func (in *inheritance) lend(f *os.File) int {
	in.files = append(in.files, f)
	return len(in.files) - 1
}

// output adds a pipe into which the process writes, and returns the end to read.
func (in *inheritance) output() *os.File {
	r, w, err := os.Pipe()
	in.add(w, err)
	return r
}

// lifeline adds a pipe whose end the process reads when the host has ended. It stores the
// write end, which has to stay open.
func (in *inheritance) lifeline(keep **os.File) int {
	r, w, err := os.Pipe()
	*keep = w
	return in.add(r, err)
}

// give makes a user the owner of the pipes, who could not open them by name otherwise.
func (in *inheritance) give(uid int) error {
	if uid == os.Geteuid() {
		return nil
	}
	for _, f := range in.own {
		if info, err := f.Stat(); err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
			continue
		}
		if err := f.Chown(uid, uid); err != nil {
			return err
		}
	}
	return nil
}

func (in *inheritance) close() {
	for _, f := range in.own {
		_ = f.Close()
	}
}

// streams are the output of a process.
type streams struct {
	stdout, stderr *os.File
	readers        sync.WaitGroup
}

// read starts the readers. They end at the end of file, or by interrupt.
// The output is not read any more when failed is called.
func (s *streams) read(h *handshake, l *logs, failed func(error)) {
	stdout := l.writer()
	stdout.line = h.line
	s.readers.Go(panics.Contain(func() {
		defer h.close()
		copyLines(stdout, s.stdout)
	}, failed))
	s.readers.Go(panics.Contain(func() { copyLines(l.writer(), s.stderr) }, failed))
}

// interrupt makes the readers end once they have read what the pipes hold. That is all that
// the ended process has written: another process that holds their write ends is not waited for.
func (s *streams) interrupt() {
	_ = s.stdout.SetReadDeadline(time.Now())
	_ = s.stderr.SetReadDeadline(time.Now())
}

// close may be called before the pipes were opened.
func (s *streams) close() {
	_ = s.stdout.Close()
	_ = s.stderr.Close()
}
