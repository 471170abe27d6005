package stagecheck

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/proto"

	"github.com/catena-dev/catena/sdk/stagev1"
)

func checkByHand(ctx context.Context, s *suite) error {
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
	err := cmd.Run()
	expected := "exit status 1, and a line with the reason"
	switch {
	case ctx.Err() != nil:
		return want(expected, "a process that still runs after %s", s.wait.third())
	case err == nil:
		return want(expected, "exit status 0")
	case !errors.As(err, new(*exec.ExitError)):
		return want(expected, "%v", err)
	case strings.TrimSpace(output.String()) == "":
		return want(expected, "%v, and no word of explanation", err)
	}
	return nil
}

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
	if schema := again.GetConfigSchema(); schema != "" && !json.Valid([]byte(schema)) {
		return want("a config_schema that is JSON", "%.100q", schema)
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
		return want("Configure and PrepareRun without an error", "%s", reason(err))
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
	var errs []error
	for _, c := range append(st.configured.GetClaims(), st.prepared.GetClaims()...) {
		if !strings.HasPrefix(c.GetPath(), "/") {
			errs = append(errs, want("claims whose paths begin with /", "%q", c.GetPath()))
		}
		if c.GetMatch() < stagev1.Claim_EXACT || c.GetMatch() > stagev1.Claim_CHILD {
			errs = append(errs, want("EXACT, PREFIX or CHILD as match of the claim "+c.GetPath(), "%s", c.GetMatch()))
		}
	}
	p := st.prepared
	errs = append(errs, distinct("post-start hook", p.GetPostStartHooks()), distinct("pre-shutdown hook", p.GetPreShutdownHooks()),
		distinct("signal", p.GetMuxAndDiscoverySignals()))
	var names []string
	for _, h := range p.GetHealthChecks() {
		names = append(names, h.GetName())
	}
	errs = append(errs, distinct("health check", names))
	return first(errs)
}

// distinct checks that names are there and can be printed, and each once.
func distinct(what string, names []string) error {
	seen := map[string]bool{}
	for _, name := range names {
		if name == "" || seen[name] {
			return want("a name of its own for each "+what, "%q in %q", name, names)
		}
		if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return want("names of printable characters for each "+what, "%q", name)
		}
		seen[name] = true
	}
	return nil
}

// first returns the first error that is one.
func first(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func checkWatch(ctx context.Context, s *suite) error {
	st, err := s.prepared(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch, err := st.rpc.Watch(ctx, &stagev1.WatchRequest{})
	if err != nil {
		return err
	}
	event, err := watch.Recv()
	expected := "a first event with the claims that PrepareRun has reported"
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
