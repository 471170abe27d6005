package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// profileSeconds is how long each row is profiled.
const profileSeconds = 3

// profile repeats each row for as long as a CPU profile of every process of Catena takes, and
// leaves the profiles in -profiles, as ROW.PROCESS.pprof.
func (c *comparison) profile(ctx context.Context, s *system) error {
	if err := os.MkdirAll(c.profiles, 0o755); err != nil {
		return err
	}
	for _, r := range requests() {
		if !c.wants(r.name) {
			continue
		}
		err := c.profileLoad(ctx, s, r.name, func(ctx context.Context) {
			_, _ = r.run(ctx, s, math.MaxInt) // ends with ctx
		})
		if err != nil {
			return err
		}
	}
	if !c.wants(rowWatch) {
		return nil
	}
	return c.profileLoad(ctx, s, rowWatch, func(ctx context.Context) {
		f, err := s.openFanOut(ctx, c.watchers)
		for err == nil {
			_, _, err = f.burst(ctx, changesFor(c.watchers))
		}
	})
}

// profileLoad profiles the processes while load runs, and then cancels that.
func (c *comparison) profileLoad(ctx context.Context, s *system, name string, load func(context.Context)) error {
	sockets, err := s.DebugSockets()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		load(ctx)
	}()
	results := make(chan error, len(sockets))
	for process, socket := range sockets {
		go func() {
			file := strings.NewReplacer(" ", "-", ",", "").Replace(name) + "." + process + ".pprof"
			results <- fetchProfile(ctx, socket, filepath.Join(c.profiles, file))
		}()
	}
	var errs []error
	for range sockets {
		errs = append(errs, <-results)
	}
	cancel()
	<-ended
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
