package stagetest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Options are what the stage gets from the host, and what surrounds it in the chain.
// The zero value is a chain of this stage alone.
type Options struct {
	// Config is the stage's own configuration. It is encoded as JSON.
	Config any
	// Flags are the API server's, each as name=value.
	Flags []string
	// User makes the requests; one named somebody in the group system:authenticated if nil.
	User *sdk.User
	// Next serves what the stage passes on, and what it does not claim; 404 if nil.
	Next http.Handler
	// Delegates are the stages downstream; each Handler serves the requests to its stage.
	Delegates []sdk.Delegate
	// API is the rest of the server for the requests that the stage makes with its own identity: those for paths that
	// it claims come back to it first. Next if nil.
	API http.Handler
}

// Stage is a stage under test.
type Stage struct {
	// URL is where clients reach the stage. Next serves what the stage declines.
	URL string
	// RPC calls the stage as the host does.
	RPC stagev1.StageClient
	// Configured and Prepared are what the stage has reported.
	Configured *stagev1.ConfigureResponse
	Prepared   *stagev1.PrepareRunResponse

	name     string
	opts     Options
	dir      string
	data     *net.UnixListener
	client   *http.Client
	relay    *relay
	inFlight inFlight
	records  records
	followed followed
	declined atomic.Int64
	logs     *logs
	process  *process // nil in process
}

// timeout bounds each step of the stage's life.
const timeout = 30 * time.Second

// Start runs a stage in this process until the test ends.
func Start(t testing.TB, stage sdk.Stage, opts Options) *Stage {
	t.Helper()
	s := Launch(t, stage, opts)
	s.run(t)
	return s
}

// StartProcess runs a program that is a stage until the test ends. The command's
// environment and standard streams are set by StartProcess, which adds what is in its
// Env to this process' environment.
func StartProcess(t testing.TB, command *exec.Cmd, opts Options) *Stage {
	t.Helper()
	s := LaunchProcess(t, command, opts)
	s.run(t)
	return s
}

// Launch is Start without Configure and PrepareRun.
func Launch(t testing.TB, stage sdk.Stage, opts Options) *Stage {
	t.Helper()
	s := newStage(t, opts)
	s.launchService(t, stage)
	s.serve(t)
	return s
}

// LaunchProcess is StartProcess without Configure and PrepareRun.
func LaunchProcess(t testing.TB, command *exec.Cmd, opts Options) *Stage {
	t.Helper()
	s := newStage(t, opts)
	s.launchProcess(t, command)
	s.serve(t)
	return s
}

// newStage creates the directory and the data socket.
func newStage(t testing.TB, opts Options) *Stage {
	t.Helper()
	dir, err := os.MkdirTemp("", "stage") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &Stage{opts: opts, dir: dir, logs: &logs{}, followed: followed{changed: make(chan struct{})}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the stage:\n%s", s.Log())
		}
	})
	s.data, err = net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "data.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.data.Close() })
	return s
}

// serve starts the servers of the host, and asks the stage for its name.
func (s *Stage) serve(t testing.TB) {
	t.Helper()
	ln, err := net.Listen("unix", filepath.Join(s.dir, "host.sock"))
	if err != nil {
		t.Fatal(err)
	}
	host := &httptest.Server{Listener: ln, Config: &http.Server{Handler: hostHandler{s}}}
	host.Start()
	t.Cleanup(func() {
		host.CloseClientConnections() // a stage that does not stop what it leads has one
		host.Close()
	})
	s.relay = newRelay(s)
	front := httptest.NewServer(s.relay)
	s.client = &http.Client{
		Transport:     &http.Transport{DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	t.Cleanup(func() {
		s.Stop(t)
		s.client.CloseIdleConnections()
		front.CloseClientConnections()
		front.Close()
		s.relay.transport.CloseIdleConnections()
	})
	s.URL = front.URL
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	d, err := s.RPC.Describe(ctx, &stagev1.DescribeRequest{})
	if err != nil {
		t.Fatalf("Describe: %v", err)
	}
	s.name = d.GetName()
}

func (s *Stage) run(t testing.TB) {
	t.Helper()
	if err := s.Configure(); err != nil {
		t.Fatalf("Configure: %v", err)
	}
	if err := s.PrepareRun(); err != nil {
		t.Fatalf("PrepareRun: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.follow(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// token is the stage's credential.
const token = "stagetest-token"

// Configure calls the method of this name.
func (s *Stage) Configure() error {
	config, err := encodeConfig(s.opts.Config)
	if err != nil {
		return err
	}
	req := &stagev1.ConfigureRequest{
		Name: s.name, Config: config, Flags: s.opts.Flags, DataDir: filepath.Join(s.dir, "files"), Generation: "1",
		Host: &stagev1.Host{
			Socket: filepath.Join(s.dir, "host.sock"), Token: token,
			User: s.ownUser().Name, Groups: s.ownUser().Groups,
			ServerVersion: "v1.37.0", ExternalUrl: s.URL,
		},
	}
	for _, d := range s.opts.Delegates {
		req.Delegates = append(req.Delegates, encodeDelegate(d))
	}
	if err := os.MkdirAll(req.DataDir, 0o700); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	s.Configured, err = s.RPC.Configure(ctx, req)
	if err == nil {
		s.followed.setClaims(s.Configured.GetClaims())
	}
	return err
}

// ownUser is the stage's identity.
func (s *Stage) ownUser() *sdk.User {
	groups := []string{"system:catena:stages", "system:authenticated"}
	return &sdk.User{Name: "system:catena:stage:" + s.name, Groups: groups}
}

func encodeConfig(config any) ([]byte, error) {
	text, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encode the configuration: %w", err)
	}
	return text, nil
}

func encodeDelegate(d sdk.Delegate) *stagev1.Delegate {
	return &stagev1.Delegate{Name: d.Name, ListedPaths: d.ListedPaths, Claims: stagev1.EncodeClaims(d.Claims),
		KubernetesVersion: d.KubernetesVersion, Optional: d.Optional}
}

// PrepareRun calls the method of this name. After it, the stage serves requests.
func (s *Stage) PrepareRun() error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var err error
	s.Prepared, err = s.RPC.PrepareRun(ctx, &stagev1.PrepareRunRequest{})
	if err == nil {
		s.followed.setClaims(s.Prepared.GetClaims())
	}
	return err
}

// Claims are what the stage has claimed last. A change comes shortly after it was made: AwaitClaimed waits for it.
func (s *Stage) Claims() []sdk.Claim {
	s.followed.mu.Lock()
	defer s.followed.mu.Unlock()
	return slices.Clone(s.followed.claims)
}

// Claimed reports whether requests for path get to the stage. Others get to Next.
func (s *Stage) Claimed(path string) bool {
	return slices.ContainsFunc(s.Claims(), func(c sdk.Claim) bool { return c.Covers(path) })
}

// Declined is how many requests the stage has declined.
func (s *Stage) Declined() int { return int(s.declined.Load()) }

// Socket is the path of the data socket.
func (s *Stage) Socket() string { return s.data.Addr().String() }

// Log is what the stage has logged, as lines of JSON.
func (s *Stage) Log() string { return s.logs.String() }

// Stop stops the stage, once; the end of the test does so too. A process has ended
// when it returns.
func (s *Stage) Stop(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if s.process != nil {
		s.process.stop(ctx, t, s.RPC)
		return
	}
	if _, err := s.RPC.Stop(ctx, &stagev1.StopRequest{}); err != nil {
		t.Errorf("Stop: %v", err)
	}
}
