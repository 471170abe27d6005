package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// prober reads one path again and again.
type prober struct {
	client *http.Client
	url    string
	end    chan struct{}
	done   sync.WaitGroup

	mu     sync.Mutex
	probes []probe
}

type probe struct {
	from, to time.Time
	ok       bool
}

func startProber(c *cluster.Catena, path string) (*prober, error) {
	client, err := rest.HTTPClientFor(c.Config(cluster.Admin))
	if err != nil {
		return nil, err
	}
	client.Timeout = time.Minute
	p := &prober{client: client, url: c.URL + path, end: make(chan struct{})}
	p.done.Go(p.run)
	return p, nil
}

func (p *prober) run() {
	for {
		select {
		case <-p.end:
			return
		case <-time.After(time.Millisecond):
		}
		one := probe{from: time.Now()}
		if resp, err := p.client.Get(p.url); err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			one.ok = err == nil && resp.StatusCode == http.StatusOK
		}
		one.to = time.Now()
		p.mu.Lock()
		p.probes = append(p.probes, one)
		p.mu.Unlock()
	}
}

func (p *prober) stop() {
	close(p.end)
	p.done.Wait()
}

// since is the longest probe that has ended since then, and how many have failed.
func (p *prober) since(began time.Time) (longest time.Duration, failed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.probes {
		if one.to.Before(began) {
			continue
		}
		longest = max(longest, one.to.Sub(one.from))
		if !one.ok {
			failed++
		}
	}
	return longest, failed
}

// awaitResponse returns when the first probe that began after a moment has succeeded.
func (p *prober) awaitResponse(ctx context.Context, after time.Time) (time.Time, error) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		p.mu.Lock()
		for i := len(p.probes) - 1; i >= 0 && p.probes[i].to.After(after); i-- {
			if one := p.probes[i]; one.ok && one.from.After(after) && (i == 0 || !p.probes[i-1].ok || !p.probes[i-1].from.After(after)) {
				p.mu.Unlock()
				return one.to, nil
			}
		}
		p.mu.Unlock()
	}
	return time.Time{}, errors.Join(ctx.Err(), errors.New("no response within a minute of the death of the process"))
}

// settle waits until every stage serves and has no process that it does not need.
func settle(ctx context.Context, c *cluster.Catena) error {
	return await(ctx, func() error {
		status, err := c.Status(ctx)
		if err != nil {
			return err
		}
		for _, s := range status.Stages {
			if s.State != "serving" || len(s.Others) > 0 {
				return fmt.Errorf("stage %s is %s, with %d other processes", s.Stage, s.State, len(s.Others))
			}
		}
		return nil
	})
}

// awaitStandby returns the process that stands by for a stage.
func awaitStandby(ctx context.Context, c *cluster.Catena, stage string) (pid int, err error) {
	err = await(ctx, func() error {
		status, err := c.Status(ctx)
		if err != nil {
			return err
		}
		for _, s := range status.Stages {
			if s.Stage == stage && s.Standby != nil && s.Standby.State == "standby" {
				pid = s.Standby.PID
				return nil
			}
		}
		return fmt.Errorf("stage %s has no standby", stage)
	})
	return pid, err
}

func await(ctx context.Context, check func() error) error {
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
		if err = check(); err == nil {
			return nil
		}
	}
	return errors.Join(ctx.Err(), err)
}

// privateMemory is the memory that no other process shares, in MiB.
func privateMemory(pid int) (float64, error) {
	size, err := sumOf(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Private_Dirty:", "Private_Clean:")
	if err == nil && size == 0 {
		err = fmt.Errorf("memory of process %d is not known", pid)
	}
	return size, err
}

// sumOf adds up lines of a file of /proc, which are in kB.
func sumOf(path string, keys ...string) (float64, error) {
	in, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	sum := 0.0
	for lines := bufio.NewScanner(in); lines.Scan(); {
		for _, key := range keys {
			if rest, ok := strings.CutPrefix(lines.Text(), key); ok {
				var kb float64
				if _, err := fmt.Sscan(rest, &kb); err == nil {
					sum += kb / 1024
				}
			}
		}
	}
	return sum, nil
}
