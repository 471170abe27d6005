package stagecheck

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

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
		if err == nil && sick == "" {
			return st.namedHealth(ctx)
		}
		if err != nil {
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

// namedHealth asks for one check by its name, and for one that there is not.
func (st *stage) namedHealth(ctx context.Context) error {
	named := st.prepared.GetHealthChecks()
	if len(named) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, st.wait.health())
	defer cancel()
	const none = "stagecheck-no-such-check"
	ask := []string{named[0].GetName(), none}
	resp, err := st.rpc.CheckHealth(ctx, &stagev1.CheckHealthRequest{Names: ask})
	if err != nil {
		return want(fmt.Sprintf("results of the checks %q", ask), "%s", reason(err))
	}
	results := map[string]string{}
	for _, r := range resp.GetResults() {
		results[r.GetName()] = r.GetError()
	}
	unknown, ok := results[none]
	if ok && unknown == "" {
		return want("an error as the result of a check that the stage does not have, or no result", "a check that passes")
	}
	delete(results, none)
	if got := slices.Sorted(maps.Keys(results)); !slices.Equal(got, ask[:1]) {
		return want(fmt.Sprintf("the result of the check that CheckHealth names, %q", ask[0]), "those of %q", got)
	}
	return nil
}

// idleTime is above what servers keep idle connections for by default: 2 to 30 seconds.
const idleTime = 32 * time.Second

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

// checkChildren looks for processes that the host could not end together with the stage.
func checkChildren(ctx context.Context, s *suite) error {
	st, err := s.prepared(ctx)
	if err != nil {
		return err
	}
	if runtime.GOOS != "linux" {
		return skip("the environment of other processes cannot be read on this system")
	}
	left := outside(st.process.PID(), s.dir)
	for _, c := range left {
		_ = syscall.Kill(c.pid, syscall.SIGKILL) // nothing else would
	}
	if len(left) > 0 {
		return want("each process that the stage starts in its process group", "%s outside of it", left)
	}
	return nil
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
		return want("the process to exit within a second when the pipe of CATENA_STAGE_PARENT_FD is at its end",
			"a process that runs %s later", s.wait.exit())
	}
}
