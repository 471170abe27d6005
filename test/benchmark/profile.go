package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// profileSeconds is how long each workload is profiled.
const profileSeconds = 3

// debugSocket is where the host of a server in dir serves its profiles. Each stage has a
// socket in the runtime directory.
func debugSocket(dir string) string { return filepath.Join(dir, "debug") }

// profiled returns the debug sockets of the processes of a server in dir, by the names
// of the processes.
func profiled(dir string) (map[string]string, error) {
	stages, err := filepath.Glob(filepath.Join(dir, "data", "run", "*-*.dbg"))
	if err != nil || len(stages) == 0 {
		return nil, err // kube-apiserver's processes are not profiled
	}
	sockets := map[string]string{"host": debugSocket(dir)}
	for _, path := range stages {
		name := filepath.Base(path)
		sockets[name[:strings.LastIndexByte(name, '-')]] = path
	}
	return sockets, nil
}

// profile repeats a workload for as long as a CPU profile of every process of Catena
// takes, and leaves the profiles in o.profiles, as WORKLOAD.PROCESS.pprof.
func (b *bench) profile(ctx context.Context, name string, do func(context.Context, *bench) error) error {
	sockets, err := profiled(b.srv.dir)
	if err != nil || len(sockets) == 0 {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var load sync.WaitGroup
	for range inFlight {
		load.Go(func() {
			for ctx.Err() == nil && do(ctx, b) == nil {
			}
		})
	}
	results := make(chan error, len(sockets))
	for process, socket := range sockets {
		go func() {
			file := strings.ReplaceAll(name, " ", "-") + "." + process + ".pprof"
			results <- fetchProfile(ctx, socket, filepath.Join(b.o.profiles, file))
		}()
	}
	var errs []error
	for range sockets {
		errs = append(errs, <-results)
	}
	cancel()
	load.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("profile of %s: %w", name, err)
	}
	return nil
}

func fetchProfile(ctx context.Context, socket, file string) error {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://catena/debug/pprof/profile?seconds=%d", profileSeconds), nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	_, err = io.Copy(out, resp.Body)
	return err
}
