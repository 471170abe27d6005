package main

import (
	"context"
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

// debugSocket is where the host of a server in dir serves its profiles; each stage
// has a socket of that name with its own appended.
func debugSocket(dir string) string { return filepath.Join(dir, "debug") }

// profile repeats a workload for as long as a CPU profile of every process of Catena
// takes, and leaves the profiles in o.profiles, as WORKLOAD.PROCESS.pprof.
func (b *bench) profile(ctx context.Context, name string, do func(context.Context, *bench) error) error {
	sockets, err := filepath.Glob(debugSocket(b.srv.dir) + "*")
	if err != nil || len(sockets) == 0 {
		return err // kube-apiserver's processes are not profiled
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
	errs := make([]error, len(sockets))
	var profiles sync.WaitGroup
	for i, socket := range sockets {
		profiles.Go(func() {
			process := strings.TrimPrefix(filepath.Base(socket), "debug.")
			if process == "debug" {
				process = "host"
			}
			file := strings.ReplaceAll(name, " ", "-") + "." + process + ".pprof"
			errs[i] = fetchProfile(ctx, socket, filepath.Join(b.o.profiles, file))
		})
	}
	profiles.Wait()
	cancel()
	load.Wait()
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("profile of %s: %w", name, err)
		}
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
