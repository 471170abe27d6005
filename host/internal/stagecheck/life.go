package stagecheck

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// checkPostStart runs all hooks at once, as the host does. One that has not come back when
// the time of the check is over has failed: no server is ready before its hooks have.
func checkPostStart(ctx context.Context, s *suite) error {
	st, err := s.prepared(ctx)
	if err != nil {
		return err
	}
	names := st.prepared.GetPostStartHooks()
	if len(names) == 0 {
		return skip("the stage has no post-start hooks")
	}
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() { _, errs[i] = st.rpc.RunPostStartHook(ctx, &stagev1.RunHookRequest{Name: name}) })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			return want("the post-start hook "+names[i]+" to succeed", "%s", reason(err))
		}
	}
	return nil
}

func checkPreShutdown(ctx context.Context, s *suite) error {
	st, err := s.prepared(ctx)
	if err != nil {
		return err
	}
	names := st.prepared.GetPreShutdownHooks()
	if len(names) == 0 {
		return skip("the stage has no pre-shutdown hooks")
	}
	for _, name := range names {
		if _, err := st.rpc.RunPreShutdownHook(ctx, &stagev1.RunHookRequest{Name: name}); err != nil {
			return want("the pre-shutdown hook "+name+" to succeed", "%s", reason(err))
		}
	}
	return st.again(ctx, "while pre-shutdown hooks run")
}

func checkHealth(ctx context.Context, s *suite) error {
	st, err := s.prepared(ctx)
	if err != nil {
		return err
	}
	begun := time.Now()
	for {
		sick, err := st.health(ctx)
		if err != nil || sick == "" {
			return err
		}
		if time.Since(begun) > s.wait.third() {
			return want(fmt.Sprintf("health checks that pass within %s", s.wait.third()), "%s", sick)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// health calls CheckHealth once and returns which checks have failed.
func (st *stage) health(ctx context.Context) (sick string, err error) {
	ctx, cancel := context.WithTimeout(ctx, st.wait.health())
	defer cancel()
	resp, err := st.rpc.CheckHealth(ctx, &stagev1.CheckHealthRequest{})
	named := st.prepared.GetHealthChecks()
	if unimplemented(err) {
		if len(named) > 0 {
			return "", want("results for the health checks that PrepareRun has named", "UNIMPLEMENTED")
		}
		return "", skip("the stage has no health checks")
	}
	if err != nil {
		return "", want(fmt.Sprintf("a response to CheckHealth within %s", st.wait.health()), "%s", reason(err))
	}
	results := map[string]string{}
	for _, r := range resp.GetResults() {
		results[r.GetName()] = r.GetError()
	}
	var failed []string
	for _, c := range named {
		problem, ok := results[c.GetName()]
		if !ok {
			return "", want("a result for the health check "+c.GetName(), "none")
		}
		if problem != "" {
			failed = append(failed, c.GetName()+": "+problem)
		}
	}
	return strings.Join(failed, ", "), nil
}

// idleTime is above what servers keep idle connections for that have a host in front
// which is not theirs.
const idleTime = 7 * time.Second

func checkIdle(ctx context.Context, s *suite) error {
	st, path, err := s.path(ctx)
	if err != nil {
		return err
	}
	if st.idle == nil {
		conn, err := st.dial(ctx)
		if err != nil {
			return err
		}
		if _, err := conn.exchange(http.MethodGet, path); err != nil {
			return err
		}
		st.keepIdle(conn)
	}
	select {
	case <-time.After(time.Until(st.idle.since.Add(idleTime))):
	case <-ctx.Done():
		return ctx.Err()
	}
	deadline, _ := ctx.Deadline()
	_ = st.idle.SetDeadline(deadline)
	if _, err := st.idle.exchange(http.MethodGet, path); err != nil {
		return want(fmt.Sprintf("a response on a connection that was idle for %s", idleTime), "%v", err)
	}
	return nil
}

// deathTime is how long a process is watched that must not end.
const deathTime = time.Second

func checkSignals(ctx context.Context, s *suite) error {
	st, err := s.prepared(ctx)
	if err != nil {
		return err
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if err := syscall.Kill(st.process.PID(), sig); err != nil {
			return fmt.Errorf("send signal: %w", err)
		}
		select {
		case <-st.process.Done():
			s.drop()
			return want(fmt.Sprintf("a process that lives on after signal %d (%s)", int(sig), sig), "its end")
		case <-time.After(deathTime):
		}
	}
	return st.again(ctx, "after the signals")
}

func checkLogging(ctx context.Context, s *suite) error {
	if _, err := s.prepared(ctx); err != nil {
		return err
	}
	dropped, odd := s.logs.complaints()
	if dropped != "" {
		return want("at most 2,000 lines of log a second", "a flood: %s", dropped)
	}
	if odd != "" {
		return want(`lines with a text in "@message" and trace, debug, info, warn or error in "@level"`, "%.300s", odd)
	}
	return nil
}

const drainSpread = time.Second

func checkDrain(ctx context.Context, s *suite) error {
	st, err := s.prepared(ctx)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	if _, path, err := s.endpointPath(ctx, "stream"); err == nil {
		resp, r, err := st.open(ctx, path)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		go func() {
			_, err := io.Copy(io.Discard, r)
			ended <- err
		}()
	} else {
		ended <- nil
	}
	drainCtx, cancel := context.WithTimeout(ctx, s.wait.third())
	defer cancel()
	resp, err := st.rpc.Drain(drainCtx, &stagev1.DrainRequest{Spread: durationpb.New(drainSpread)})
	switch {
	case unimplemented(err):
		return skip("the stage does not implement Drain")
	case err != nil:
		return want(fmt.Sprintf("a response to Drain within %s", s.wait.third()), "%s", reason(err))
	case resp.GetRunning() != 0:
		return want("no request running after Drain", "%d", resp.GetRunning())
	}
	if err := <-ended; err != nil {
		return want("a stream that ends properly when the stage drains", "%v", err)
	}
	return st.again(ctx, "after Drain")
}

func checkStop(ctx context.Context, s *suite) error {
	st, err := s.prepared(ctx)
	if err != nil {
		return err
	}
	st.ending = true
	defer s.drop()
	if err := st.process.Stop(ctx); err != nil {
		return want("a response to Stop, and the process to end with status 0 within two seconds of Shutdown", "%v", err)
	}
	return nil
}

func checkHostDeath(ctx context.Context, s *suite) error {
	st, err := s.prepared(ctx)
	if err != nil {
		return err
	}
	st.ending = true
	defer s.drop()
	if st.path != "" {
		if conn, err := st.half(ctx, st.path); err == nil { // with a request in flight
			defer conn.Close()
		}
	}
	if err := st.process.LoseHost(); err != nil {
		return err
	}
	select {
	case <-st.process.Done():
		return nil
	case <-time.After(s.wait.exit()):
		return want("the process to exit within a second when the pipe of CATENA_STAGE_PARENT_FD is at its end", "a process that runs %s later", s.wait.exit())
	}
}
