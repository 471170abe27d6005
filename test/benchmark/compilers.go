package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
)

// startCompilers keeps n processors busy, or as much of them as the kernel gives it, until stop is called: each
// compiler builds Go's standard library over and over, in one thread.
func (c *comparison) startCompilers(ctx context.Context, n int) (stop func(), err error) {
	if _, err := exec.LookPath("go"); err != nil {
		return nil, fmt.Errorf("-compilers: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var compilers sync.WaitGroup
	for i := range n {
		cache := filepath.Join(c.dir, fmt.Sprintf("compiler-%d", i+1))
		compilers.Go(func() {
			for ctx.Err() == nil {
				cmd := exec.CommandContext(ctx, "go", "build", "-a", "-p", "1", "std")
				cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOCACHE="+cache, "GOFLAGS=")
				cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
				cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with the compiler that it runs
				cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
				_ = cmd.Run() // ctx has ended it, or it begins again
			}
		})
	}
	return func() { cancel(); compilers.Wait() }, nil
}
