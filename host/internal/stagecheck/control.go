package stagecheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/catena-dev/catena/host/internal/generation"
	"github.com/catena-dev/catena/host/internal/schema"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// checkByHand leaves out a program that does not start as a stage either: whatever it prints then says nothing of how it was started.
func checkByHand(ctx context.Context, s *suite) error {
	st, err := s.launched(ctx)
	if err != nil {
		return skipf("the stage does not start: %v", err)
	}
	st.close()
	ctx, cancel := context.WithTimeout(ctx, s.wait.third())
	defer cancel()
	cmd := exec.CommandContext(ctx, s.binary.Path)
	cmd.Env = withoutProtocol(cmd.Environ())
	for name, value := range s.opts.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.WaitDelay = time.Second
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err = cmd.Run()
	const expected = "exit status 1, and a line that calls it a stage"
	switch {
	case ctx.Err() != nil:
		return want(expected, "a process that still runs after %s", s.wait.third())
	case err == nil:
		return want(expected, "exit status 0")
	case !errors.As(err, new(*exec.ExitError)):
		return want(expected, "%v", err)
	case cmd.ProcessState.ExitCode() != 1:
		return want(expected, "%v", err)
	case strings.TrimSpace(output.String()) == "":
		return want(expected, "%v, and no word of explanation", err)
	case backtrace.Match(output.Bytes()):
		return want(expected, "a crash:\n%.500s", output.String())
	}
	return nil
}

// backtrace recognizes what common languages print when a program ends by a mistake in it.
var backtrace = regexp.MustCompile(`(?m)^Traceback \(most recent call last\)|^panic: |^goroutine \d+ \[|Exception in thread|\b[Ss]yntax ?[Ee]rror\b|^\s+at .+:\d+|:\d+:in .+\(\w*Error\)$|panicked at `)

// withoutProtocol is the environment of a shell.
func withoutProtocol(env []string) []string {
	var out []string
	for _, kv := range env {
		if !strings.HasPrefix(kv, "CATENA_STAGE_") && !strings.HasPrefix(kv, "PLUGIN_") {
			out = append(out, kv)
		}
	}
	return out
}

func checkHandshake(ctx context.Context, s *suite) error {
	st, err := s.launch(ctx)
	if err != nil {
		s.cannot = skip("the stage did not start")
		return want("a handshake on standard output, and a response to Describe with the name "+s.binary.Name, "%v", err)
	}
	st.close()
	return nil
}

func checkDescribe(ctx context.Context, s *suite) error {
	st, err := s.launched(ctx)
	if err != nil {
		return err
	}
	defer st.close()
	again, err := st.rpc.Describe(ctx, &stagev1.DescribeRequest{})
	if err != nil {
		return want("a response to a second Describe", "%s", reason(err))
	}
	if first := st.process.Description(); !proto.Equal(first, again) {
		return want("the response of the first call, "+first.String(), "%s", again)
	}
	if _, err := schema.Check(ctx, again.GetConfigSchema(), nil); err != nil {
		return want("a config_schema that is a JSON schema", "%.100q: %v", again.GetConfigSchema(), err)
	}
	return nil
}

// launched is a stage that is not configured yet. The caller has to close it.
func (s *suite) launched(ctx context.Context) (*stage, error) {
	if s.cannot != nil {
		return nil, s.cannot
	}
	return s.launch(ctx)
}

func checkPrepare(ctx context.Context, s *suite) error {
	if s.cannot != nil {
		return s.cannot
	}
	st, err := s.bringUp(ctx)
	if err != nil {
		s.cannot = skip("the stage was not prepared")
		return want("the configuration to be taken, and Configure and PrepareRun without an error", "%s", reason(err))
	}
	s.stage = st
	if len(st.prepared.GetClaims()) == 0 {
		return nil
	}
	if _, _, err := s.path(ctx); err != nil {
		s.cannot = skip("the stage serves no requests")
		s.drop()
		return err
	}
	return nil
}

func checkClaims(ctx context.Context, s *suite) error {
	st, err := s.prepared(ctx)
	if err != nil {
		return err
	}
	reported := &stagev1.PrepareRunResponse{Claims: st.configured.GetClaims()}
	for _, report := range []*stagev1.PrepareRunResponse{reported, st.prepared} {
		if err := generation.CheckReport(report); err != nil {
			return want("claims, hooks, health checks and signals that the host takes", "%v", err)
		}
	}
	return nil
}

func checkWatch(ctx context.Context, s *suite) error {
	st, err := s.prepared(ctx)
	if err != nil {
		return err
	}
	event, err := st.events.first, st.events.err
	const expected = "a first event with the claims that PrepareRun has reported"
	switch {
	case unimplemented(err):
		return skip("the stage does not implement Watch: its claims never change")
	case err != nil:
		return want(expected, "%s", reason(err))
	case event.GetClaimsChanged() == nil:
		return want(expected, "an event without claims: %s", event)
	case !sameClaims(event.GetClaimsChanged().GetClaims(), st.prepared.GetClaims()):
		return want(expected, "%s", event.GetClaimsChanged())
	}
	return nil
}

// sameClaims compares claims in any order.
func sameClaims(a, b []*stagev1.Claim) bool {
	count := map[string]int{}
	for _, c := range a {
		count[fmt.Sprint(c.GetMatch(), c.GetPath())]++
	}
	for _, c := range b {
		count[fmt.Sprint(c.GetMatch(), c.GetPath())]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}
