// Package apiserver runs the two systems that are compared, kube-apiserver with an etcd and
// Catena, and measures what their processes use.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	readyTimeout = 3 * time.Minute
	readyPoll    = 20 * time.Millisecond
	stopTimeout  = 20 * time.Second
)

// Server is an API server with its store and all of its processes, on a data directory of its
// own. It can be started, stopped, and started again on the same data.
type Server struct {
	// Name is what reports call the system.
	Name string
	// Config connects as a user who may do everything.
	Config *rest.Config
	// Binaries are the files that the system is installed as.
	Binaries []string

	dir      string
	commands []command
	procs    []*proc
}

// proc is a running command.
type proc struct {
	*exec.Cmd
	ended chan struct{} // closed when the command has ended
}

// command is one of the commands that a server consists of.
type command struct {
	log  string
	path string
	args []string
}

// Dir is the directory with the data and the logs.
func (s *Server) Dir() string { return s.dir }

// Start runs the commands of the server and returns the time until /readyz succeeds.
func (s *Server) Start(ctx context.Context) (time.Duration, error) {
	client, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	for _, c := range s.commands {
		if err = s.run(c); err != nil {
			break
		}
	}
	if err == nil {
		err = s.awaitReady(ctx, client)
	}
	if err != nil {
		return 0, errors.Join(fmt.Errorf("start %s: %w (logs are in %s)", s.Name, err, s.dir), s.Stop())
	}
	return time.Since(began), nil
}

// run starts a command in a process group of its own, with its output at the end of its log.
func (s *Server) run(c command) error {
	out, err := os.OpenFile(filepath.Join(s.dir, c.log), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(c.path, c.args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &proc{cmd, make(chan struct{})}
	s.procs = append(s.procs, p)
	go func() {
		defer close(p.ended)
		_ = p.Wait() // how it ends matters only while the server starts, and its log says why
	}()
	return nil
}

// awaitReady waits until /readyz succeeds or a process has ended.
func (s *Server) awaitReady(ctx context.Context, client kubernetes.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		if name := s.ended(); name != "" {
			return fmt.Errorf("%s has ended", name)
		}
		body, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err == nil && string(body) == "ok" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", errors.Join(ctx.Err(), err))
		case <-time.After(readyPoll):
		}
	}
}

// ended returns the name of a process that has ended, if there is one.
func (s *Server) ended() string {
	for _, p := range s.procs {
		select {
		case <-p.ended:
			return filepath.Base(p.Path)
		default:
		}
	}
	return ""
}

// Stop ends the processes in the reverse order of their start. A process that does not end
// within twenty seconds is killed, and an error.
func (s *Server) Stop() error {
	var errs []error
	for i := len(s.procs) - 1; i >= 0; i-- {
		p := s.procs[i]
		_ = p.Process.Signal(syscall.SIGTERM)
		timer := time.AfterFunc(stopTimeout, func() { _ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL) })
		<-p.ended
		if !timer.Stop() {
			errs = append(errs, fmt.Errorf("stop %s: %s did not end within %v", s.Name, filepath.Base(p.Path), stopTimeout))
		}
	}
	s.procs = nil
	return errors.Join(errs...)
}
