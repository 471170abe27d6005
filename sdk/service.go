package sdk

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/internal/httpserver"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Service runs one stage: it serves the host's RPCs, and from PrepareRun on the requests
// at the data socket. Main runs a Service in a process; tests can use one directly.
type Service struct {
	stagev1.UnimplementedStageServer

	stage Stage
	// description is what Describe returns, which is made once: the host asks again and again, whether the process responds.
	description func() *stagev1.DescribeResponse
	data        net.Listener
	log         hclog.Logger

	ctx     context.Context // ends at Stop
	cancel  context.CancelFunc
	drain   *drain
	stopped chan struct{}
	started time.Time
	// clientTLS stands for the TLS of clients' connections, without details.
	clientTLS *tls.ConnectionState

	mu       sync.Mutex
	env      *Env               // from Configure on
	handler  http.Handler       // from Configure on
	server   *httpserver.Server // from PrepareRun on, or from Activate on for a standby
	standby  bool               // requests are served from Activate on
	prepared bool
	stopping bool
}

// NewService returns the service of a stage that serves requests at data, a listener of Unix or TCP sockets. Close it, or
// call Stop, to release what it holds.
func NewService(stage Stage, data net.Listener, log hclog.Logger) (*Service, error) {
	if err := stage.check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Service{
		stage: stage, description: sync.OnceValue(stage.describe), data: data, log: log,
		ctx: ctx, cancel: cancel, drain: newDrain(), stopped: make(chan struct{}), started: time.Now(),
		clientTLS: &tls.ConnectionState{HandshakeComplete: true},
	}, nil
}

// Stopped is closed when the stage has stopped.
func (s *Service) Stopped() <-chan struct{} { return s.stopped }

// Describe returns what the stage is.
func (s *Service) Describe(context.Context, *stagev1.DescribeRequest) (*stagev1.DescribeResponse, error) {
	return s.description(), nil
}

// ValidateConfig checks a configuration against the type of Stage.Config, and with the
// stage's own Validate.
func (s *Service) ValidateConfig(_ context.Context, req *stagev1.ValidateConfigRequest) (*stagev1.ValidateConfigResponse, error) {
	if s.stage.Validate == nil && s.stage.Config == nil {
		return nil, status.Error(codes.Unimplemented, "the stage checks its configuration when it is configured")
	}
	resp := &stagev1.ValidateConfigResponse{}
	err := guard(s.log, "Validate", func() error {
		problems := s.stage.validate(req.GetConfig())
		if len(problems) == 0 && s.stage.Validate != nil {
			problems = s.stage.Validate(req.GetConfig(), req.GetFlags())
		}
		for _, p := range problems {
			resp.Problems = append(resp.Problems, &stagev1.ConfigProblem{Key: p.Key, Message: p.Message})
		}
		return nil
	})
	return resp, err
}

// Configure makes the stage build its handler.
func (s *Service) Configure(_ context.Context, req *stagev1.ConfigureRequest) (*stagev1.ConfigureResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.env != nil || s.stopping {
		return nil, status.Error(codes.FailedPrecondition, "Configure was called already")
	}
	if problems := s.stage.validate(req.GetConfig()); len(problems) > 0 {
		return nil, status.Errorf(codes.InvalidArgument, "config of stage %q: %s", req.GetName(), joinProblems(problems))
	}
	env := newEnv(s.ctx, req, s.log, s.drain)
	env.defaults = s.stage.Config
	s.env, s.standby = env, req.GetStandby()
	var handler http.Handler
	err := guard(s.log, "New", func() (err error) {
		if err = env.startTracing(s.stage.Tracing); err != nil {
			return fmt.Errorf("tracing: %w", err)
		}
		handler, err = s.stage.New(env)
		return err
	})
	if err = errors.Join(err, env.mistake()); err != nil {
		return nil, err
	}
	if handler == nil {
		handler = env.Next
	}
	s.handler = handler
	listed, claims := env.reports.paths()
	return &stagev1.ConfigureResponse{ListedPaths: listed, Claims: claims}, nil
}

// PrepareRun finishes the stage and begins to serve requests, unless it is a standby.
func (s *Service) PrepareRun(ctx context.Context, _ *stagev1.PrepareRunRequest) (*stagev1.PrepareRunResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handler == nil || s.prepared || s.stopping {
		return nil, status.Error(codes.FailedPrecondition, "PrepareRun follows Configure, once")
	}
	if err := s.env.runPrepare(ctx); err != nil {
		return nil, err
	}
	if s.prepared = true; !s.standby {
		s.server = s.serve()
	}
	listed, claims := s.env.reports.paths()
	return &stagev1.PrepareRunResponse{
		ListedPaths: listed, Claims: claims,
		PostStartHooks:         s.env.start.names(),
		PreShutdownHooks:       s.env.shutdown.names(),
		HealthChecks:           s.env.checks.toWire(),
		MuxAndDiscoverySignals: s.env.reports.signals(),
	}, nil
}

// configured returns the environment, or an error before Configure.
func (s *Service) configured() (*Env, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.env == nil {
		return nil, status.Error(codes.FailedPrecondition, "the stage is not configured")
	}
	return s.env, nil
}

// Watch streams the stage's reports. Changes that come faster than they are sent are merged.
func (s *Service) Watch(_ *stagev1.WatchRequest, stream stagev1.Stage_WatchServer) error {
	env, err := s.configured()
	if err != nil {
		return err
	}
	var at cursor
	for {
		event, changed := env.reports.since(&at)
		if event != nil {
			if err := stream.Send(event); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-s.ctx.Done():
			return nil
		}
	}
}

// RunPostStartHook runs one hook.
func (s *Service) RunPostStartHook(ctx context.Context, req *stagev1.RunHookRequest) (*stagev1.RunHookResponse, error) {
	env, err := s.configured()
	if err != nil {
		return nil, err
	}
	return &stagev1.RunHookResponse{}, env.runHook(ctx, &env.start, req.GetName())
}

// RunPreShutdownHook runs one hook.
func (s *Service) RunPreShutdownHook(ctx context.Context, req *stagev1.RunHookRequest) (*stagev1.RunHookResponse, error) {
	env, err := s.configured()
	if err != nil {
		return nil, err
	}
	return &stagev1.RunHookResponse{}, env.runHook(ctx, &env.shutdown, req.GetName())
}

// CheckHealth runs health checks.
func (s *Service) CheckHealth(ctx context.Context, req *stagev1.CheckHealthRequest) (*stagev1.CheckHealthResponse, error) {
	env, err := s.configured()
	if err != nil {
		return nil, err
	}
	ctx, cancel := beforeDeadline(ctx)
	defer cancel()
	return &stagev1.CheckHealthResponse{Results: env.checkHealth(ctx, req.GetNames())}, nil
}

// responseMargin is how long a response takes to reach the host.
const responseMargin = 100 * time.Millisecond

// beforeDeadline returns a context that ends shortly before ctx does, so that the host
// still gets a response, which says what has not been done.
func beforeDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	margin := min(responseMargin, time.Until(deadline)/4)
	return context.WithDeadline(ctx, deadline.Add(-margin))
}

// Drain waits for the end of the requests in flight.
func (s *Service) Drain(ctx context.Context, req *stagev1.DrainRequest) (*stagev1.DrainResponse, error) {
	s.drain.begin(req.GetSpread().AsDuration())
	ctx, cancel := beforeDeadline(ctx)
	defer cancel()
	return &stagev1.DrainResponse{Running: int64(s.drain.wait(ctx))}, nil
}

// stopGrace is how long handlers and hooks may take to return after their contexts have ended.
const stopGrace = time.Second

// Stop ends what still runs, and releases everything.
func (s *Service) Stop(ctx context.Context, _ *stagev1.StopRequest) (*stagev1.StopResponse, error) {
	s.drain.begin(0)
	s.endRequests(ctx)
	s.cancel() // before the lock, which New or an OnPrepareRun function may hold that hangs
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return &stagev1.StopResponse{}, nil
	}
	s.stopping = true
	defer close(s.stopped)
	if s.server != nil {
		_ = s.server.Close()
	}
	_ = s.data.Close()
	if s.env != nil {
		ctx, cancel := context.WithTimeout(ctx, stopGrace)
		defer cancel()
		if n := s.drain.wait(ctx); n > 0 {
			s.log.Warn("requests have not ended with the stage", "requests", n)
		}
		s.env.awaitHooks(ctx)
		s.env.runDestroy()
	}
	return &stagev1.StopResponse{}, nil
}

// endRequests lets the requests end that have begun since the drain: other stages ask until they end too. It takes up
// to a quarter of the time that there is for the end, and stopGrace.
func (s *Service) endRequests(ctx context.Context) {
	if !s.mu.TryLock() {
		return
	}
	server := s.server
	s.mu.Unlock()
	if server == nil {
		return
	}
	grace := stopGrace
	if deadline, ok := ctx.Deadline(); ok {
		grace = min(grace, time.Until(deadline)/4)
	}
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	_ = server.Shutdown(ctx)
}

// Close stops the stage if the host has not.
func (s *Service) Close() { _, _ = s.Stop(context.Background(), &stagev1.StopRequest{}) }
