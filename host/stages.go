package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/catena-dev/catena/host/internal/chain"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/guard"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/sdk/stagev1"
)

const (
	// preShutdownTimeout bounds each stage's pre-shutdown hooks.
	preShutdownTimeout = 10 * time.Second
	// upgradeGrace is how long connections whose protocol was switched may outlast all
	// other requests at the end of the server.
	upgradeGrace = time.Second
	// hostSocketName is the socket on which stages call the host.
	hostSocketName = "host.sock"
)

// buildChain makes the relay and the socket on which the stages call the host.
func (s *server) buildChain(context.Context) error {
	s.chain = relay.NewChain(relay.Config{
		NotFound: http.HandlerFunc(s.notFound), Error: s.stageError, Carrier: s.front.Carrier(), Observe: s.observe,
		Hold: relay.Limits{Requests: int(s.config().HoldRequests)},
	})
	s.front.SetChain(s.chain)

	s.saved = readClaims(claimsFile(s.storage.Dir))
	socket := filepath.Join(s.run, hostSocketName)
	l, err := guard.Listen(socket)
	if err != nil {
		return fmt.Errorf("socket for the stages: %w", err)
	}
	handler := &relay.HostHandler{Chain: s.chain, API: s.front.Handler(), Caller: s.caller, As: s.as}
	srv := &http.Server{Handler: handler, ErrorLog: s.log.StandardLogger(nil)}
	go func() { _ = srv.Serve(l) }()
	s.undo.add(srv.Close)

	s.stages, err = supervisor.New(supervisor.Options{
		Chain: s.specs, DataDir: s.storage.Dir, RuntimeDir: s.run, Flags: s.flags.List(), HostSocket: socket,
		ServerVersion: s.front.Version(), ExternalURL: s.front.ExternalURL(), HoldTimeout: s.config().HoldTimeout, Log: s.log, StageLog: s.others,
		Publish: s.publish, AwaitEmpty: s.chain.AwaitEmpty, HostPaths: s.front.OwnPaths, ResourceSizes: s.resourceSizes, Events: s.event,
	})
	if err != nil {
		return err
	}
	s.undo.add(s.stages.Stop)
	go s.endByForce()
	front.SetSupervision(front.Supervision{States: supervisor.States(), Stages: s.stageStates, Held: s.heldRequests})
	return nil
}

var errIncomplete = errors.New("it does not know all of its paths yet")

// notFound is the end of the chain. While a stage that has been restarted is finding
// out what it serves, nobody can know that a path is not served.
func (s *server) notFound(w http.ResponseWriter, r *http.Request) {
	if stage := s.stages.Incomplete(); stage != "" {
		s.stageError(w, r, &relay.StageError{Kind: relay.Unavailable, Stage: stage, Err: errIncomplete})
		return
	}
	s.front.NotFound().ServeHTTP(w, r)
}

// stageError answers a request that got no answer from its stage. What is known of a
// stage that is down is for operators, as the whole error is.
func (s *server) stageError(w http.ResponseWriter, r *http.Request, e *relay.StageError) {
	told := *e
	if e.Kind == relay.Unavailable {
		for _, st := range s.stages.Status() {
			if st.Stage == e.Stage && st.State == supervisor.Down && st.Failure != "" {
				told.Err = fmt.Errorf("%w; latest failure: %s", e.Err, st.Failure)
			}
		}
	}
	s.front.StageError(w, r, &told)
}

// observe counts the requests of the stages.
func (s *server) observe(h relay.Hop) {
	front.ObserveHop(h.Stage, h.Outcome)
	s.stages.Observe(h.Socket, h.Failed())
}

// caller is the process of a stage to which a token belongs.
func (s *server) caller(token string) (relay.Caller, bool) {
	id, ok := s.stages.Authenticate(token)
	return relay.Caller{Stage: id.Stage, User: id.User, Groups: id.Groups, Delegates: id.Delegates, Staged: id.Staged}, ok
}

// as gives a request the identity that the configuration has for the stage that calls.
func (s *server) as(r *http.Request, caller relay.Caller) *http.Request {
	return r.WithContext(front.WithLoopbackUser(r.Context(), caller.User, caller.Groups))
}

// startStages brings the chain up and says so, a line for each stage.
func (s *server) startStages(ctx context.Context) error {
	return located(s.cfg, s.stages.Start(ctx, func(stage, version string, pid int, took time.Duration) {
		front.ObserveStart(stage, took)
		fmt.Fprintf(s.out, "stage %-12s %-10s pid %-8d up after %s\n", stage, version, pid, took.Round(time.Millisecond))
	}))
}

// registerStages makes the stages' hooks, checks and signals part of the server.
func (s *server) registerStages() error {
	complete := make(chan struct{})
	if err := s.front.AddSignal("catena-stages", complete); err != nil {
		return err
	}
	s.front.SetChecks(s.checks)
	err := s.front.AddPostStartHook("catena-stages", func(context.Context) error {
		s.stages.RunPostStartHooks(s.front.Fail)
		return nil
	})
	if err != nil {
		return err
	}
	s.front.AddPreShutdownHook("catena-stages", func() error {
		return s.stages.RunPreShutdownHooks(context.Background(), preShutdownTimeout)
	})
	ctx, cancel := context.WithCancel(context.Background())
	go s.awaitComplete(ctx, complete)
	s.drained, s.endDrain = make(chan struct{}), cancel
	go func() {
		defer close(s.drained)
		select {
		case <-s.front.Draining():
			s.stages.Drain(ctx, 0)
		case <-ctx.Done():
		}
	}()
	return nil
}

// completePoll is how often the stages are asked whether they know all of their paths.
// It is a question to this process alone.
const completePoll = 10 * time.Millisecond

// awaitComplete closes the channel when every stage of the chain, whichever those are by
// then, knows all of its paths.
func (s *server) awaitComplete(ctx context.Context, complete chan<- struct{}) {
	for s.stages.Incomplete() != "" {
		select {
		case <-ctx.Done():
			return
		case <-time.After(completePoll):
		}
	}
	close(complete)
}

// checks are the health checks of the stages that are in the chain at the time.
func (s *server) checks() []front.Check {
	all := append(s.servingChecks(), withEtcd(s.stages.Checks())...)
	checks := make([]front.Check, len(all))
	for i, c := range all {
		checks[i] = front.Check(c)
	}
	return checks
}

// servingChecks are a check for each stage, STAGE/serving, which fails when requests to it
// are refused: a stage need not have checks of its own.
func (s *server) servingChecks() []supervisor.Check {
	var checks []supervisor.Check
	for _, st := range s.stages.Status() {
		checks = append(checks, supervisor.Check{
			Name: st.Stage + "/serving", Readyz: true, Required: st.Required,
			Run: func(context.Context) error {
				if st.State == supervisor.Down {
					return fmt.Errorf("stage %q is down: %s", st.Stage, st.Failure)
				}
				return nil
			},
		})
	}
	return checks
}

// awaitDrain returns when the stages have ended what they had to do for clients. When
// the front has ended, only upgraded connections can be left of that.
func (s *server) awaitDrain() {
	defer time.AfterFunc(upgradeGrace, s.endDrain).Stop()
	<-s.drained
}

// withEtcd adds the check "etcd", which monitoring of kube-apiserver asks for. It
// passes if the checks of that name of all stages do.
func withEtcd(checks []supervisor.Check) []supervisor.Check {
	var etcd []supervisor.Check
	for _, c := range checks {
		if c.Required && strings.HasSuffix(c.Name, "/etcd") {
			etcd = append(etcd, c)
		}
	}
	if len(etcd) == 0 {
		return checks
	}
	return append(checks, supervisor.Check{Name: "etcd", Healthz: true, Livez: true, Readyz: true, Required: true,
		Run: func(ctx context.Context) error {
			for _, c := range etcd {
				if err := c.Run(ctx); err != nil {
					return fmt.Errorf("%s: %w", c.Name, err)
				}
			}
			return nil
		}})
}

// publish gives the relay a new state of the chain.
func (s *server) publish(stages []supervisor.Published) {
	s.published.Store(&stages)
	links := make([]relay.Stage, len(stages))
	claims := make([]chain.StageClaims, len(stages))
	for i, st := range stages {
		links[i] = relay.Stage{Name: st.Name, Socket: st.Socket, Refusal: st.Refusal, Held: st.Held}
		claims[i] = chain.StageClaims{Name: st.Name, Claims: claimsOf(st.Claims)}
	}
	s.chain.Set(chain.NewTable(claims), links)
	if err := s.saveClaims(stages, claims); err != nil {
		s.log.Warn("claims could not be saved for \"catena chain\"", "error", err)
	}
}

func claimsOf(wire []*stagev1.Claim) []chain.Claim {
	claims := make([]chain.Claim, len(wire))
	for i, c := range wire {
		claims[i] = chain.Claim{Path: c.GetPath(), Match: chain.Match(c.GetMatch())}
	}
	return claims
}

// claimTexts writes claims as people read them: /a/* covers everything below /a too, /a/+
// one segment more.
func claimTexts(claims []chain.Claim) []string {
	suffix := map[chain.Match]string{chain.Prefix: "/*", chain.Child: "/+"}
	texts := make([]string, len(claims))
	for i, c := range claims {
		texts[i] = c.Path + suffix[c.Match]
	}
	return texts
}

// saveClaims leaves the claims for "catena chain", and for a later start on which a stage
// that is not required does not come up. What is only assumed of such a stage is not saved.
func (s *server) saveClaims(stages []supervisor.Published, claims []chain.StageClaims) error {
	all := map[string][]string{}
	for i, st := range stages {
		texts := claimTexts(claims[i].Claims)
		if st.Absent {
			texts = s.saved[st.Name]
		}
		if len(texts) > 0 {
			all[st.Name] = texts
		}
	}
	if maps.EqualFunc(all, s.saved, slices.Equal) {
		return nil
	}
	b, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if err := private(claimsFile(s.storage.Dir), b); err != nil {
		return err
	}
	s.saved = all
	return nil
}

func (s *server) resourceSizes(sizes []*stagev1.ResourceSize) {
	for _, r := range sizes {
		s.front.SetResourceSize(r.GetResource(), r.GetCount(), r.GetObjectBytes())
	}
}
