// Stage yesterday is built against a copy of the protocol, see the README.
package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"

	"github.com/catena-dev/catena/test/compatible/testdata/v1/stagev1"
)

func main() {
	if len(os.Args) > 1 { // the protocol that it knows
		text, err := proto.Marshal(protodesc.ToFileDescriptorProto(stagev1.File_sdk_stagev1_stage_proto))
		fmt.Println(hex.EncodeToString(text), err)
		return
	}
	if os.Getenv(stagev1.MagicCookieKey) != stagev1.MagicCookieValue {
		fmt.Fprintln(os.Stderr, "is a part of a test")
		os.Exit(1)
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		_, _ = inherited(stagev1.EnvParent).Read(make([]byte, 1))
		os.Exit(3)
	}()
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: stagev1.Handshake(),
		Plugins:         stagev1.Plugins(&stage{drain: make(chan struct{}), stderr: os.Stderr}),
		GRPCServer:      plugin.DefaultGRPCServer,
	})
}

func inherited(name string) *os.File {
	fd, _ := strconv.Atoi(os.Getenv(name))
	return os.NewFile(uintptr(fd), name)
}

type stage struct {
	stagev1.UnimplementedStageServer
	host    *stagev1.Host
	client  *http.Client
	running atomic.Int64
	drain   chan struct{}
	stderr  *os.File
}

func (s *stage) Describe(context.Context, *stagev1.DescribeRequest) (*stagev1.DescribeResponse, error) {
	return &stagev1.DescribeResponse{Name: "yesterday", Version: "v1.0.0", Sdk: "none", ConfigSchema: `{"type":"object"}`}, nil
}

func (s *stage) ValidateConfig(_ context.Context, r *stagev1.ValidateConfigRequest) (*stagev1.ValidateConfigResponse, error) {
	resp := &stagev1.ValidateConfigResponse{}
	if err := json.Unmarshal(r.GetConfig(), &map[string]any{}); err != nil {
		resp.Problems = []*stagev1.ConfigProblem{{Message: err.Error()}}
	}
	return resp, nil
}

func claims() []*stagev1.Claim {
	return []*stagev1.Claim{{Path: "/yesterday", Match: stagev1.Claim_PREFIX}}
}

func (s *stage) Configure(_ context.Context, r *stagev1.ConfigureRequest) (*stagev1.ConfigureResponse, error) {
	if r.GetName() == "" || r.GetGeneration() == "" || r.GetDataDir() == "" || len(r.GetDelegates()) == 0 {
		return nil, fmt.Errorf("something is missing: %v", r)
	}
	s.host = r.GetHost()
	s.client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.host.GetSocket())
	}}}
	return &stagev1.ConfigureResponse{Claims: claims(), ListedPaths: []string{"/yesterday"}}, nil
}

func (s *stage) PrepareRun(context.Context, *stagev1.PrepareRunRequest) (*stagev1.PrepareRunResponse, error) {
	ln, err := net.FileListener(inherited(stagev1.EnvListener))
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: s, MaxHeaderBytes: 4 << 20, DisableGeneralOptionsHandler: true}
	go func() { _ = server.Serve(ln) }()
	fmt.Fprintln(s.stderr, `{"@level":"info","@message":"serves","path":"/yesterday"}`)
	return &stagev1.PrepareRunResponse{
		Claims: claims(), ListedPaths: []string{"/yesterday"},
		PostStartHooks: []string{"calls-host"}, PreShutdownHooks: []string{"says-goodbye"},
		HealthChecks:           []*stagev1.HealthCheck{{Name: "well", Livez: true, Readyz: true, Healthz: true}},
		MuxAndDiscoverySignals: []string{"installed"},
	}, nil
}

func (s *stage) Watch(_ *stagev1.WatchRequest, stream stagev1.Stage_WatchServer) error {
	err := stream.Send(&stagev1.Event{
		ClaimsChanged: &stagev1.ClaimsChanged{Claims: claims(), ListedPaths: []string{"/yesterday"}},
		Signaled:      []string{"installed"},
		ResourceSizes: []*stagev1.ResourceSize{{Resource: "things.yesterday.example.com", Count: 1}},
	})
	<-stream.Context().Done()
	return err
}

func (s *stage) RunPostStartHook(ctx context.Context, r *stagev1.RunHookRequest) (*stagev1.RunHookResponse, error) {
	if r.GetName() != "calls-host" {
		return s.UnimplementedStageServer.RunPostStartHook(ctx, r)
	}
	resp, err := s.call(ctx, http.MethodGet, "/version", nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	return &stagev1.RunHookResponse{}, nil
}

func (s *stage) RunPreShutdownHook(ctx context.Context, r *stagev1.RunHookRequest) (*stagev1.RunHookResponse, error) {
	if r.GetName() != "says-goodbye" {
		return s.UnimplementedStageServer.RunPreShutdownHook(ctx, r)
	}
	return &stagev1.RunHookResponse{}, nil
}

func (s *stage) CheckHealth(context.Context, *stagev1.CheckHealthRequest) (*stagev1.CheckHealthResponse, error) {
	return &stagev1.CheckHealthResponse{Results: []*stagev1.HealthResult{{Name: "well"}}}, nil
}

func (s *stage) Drain(ctx context.Context, _ *stagev1.DrainRequest) (*stagev1.DrainResponse, error) {
	close(s.drain)
	for s.running.Load() > 0 && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	return &stagev1.DrainResponse{Running: s.running.Load()}, nil
}

func (s *stage) Stop(context.Context, *stagev1.StopRequest) (*stagev1.StopResponse, error) {
	return &stagev1.StopResponse{}, nil
}

// call makes a request to the host; id is that of a request which is handed on.
func (s *stage) call(ctx context.Context, method, path string, header http.Header) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://catena"+path, nil)
	if err != nil {
		return nil, err
	}
	for key, values := range header {
		r.Header[key] = values
	}
	r.Header.Set("Authorization", "Bearer "+s.host.GetToken())
	return s.client.Do(r)
}

func (s *stage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.running.Add(1)
	defer s.running.Add(-1)
	switch r.URL.Path {
	case "/yesterday":
		fmt.Fprintln(w, r.Header.Get(stagev1.HeaderUser))
	case "/yesterday/next":
		s.handOn(w, r)
	case "/yesterday/check/echo":
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	case "/yesterday/check/stream":
		fmt.Fprintln(w, "begin")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-s.drain:
		case <-r.Context().Done():
		}
	default:
		w.Header().Set(stagev1.HeaderDecline, "1")
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusNotFound)
	}
}

// handOn changes the path of a request and passes on the response of the stages downstream.
func (s *stage) handOn(w http.ResponseWriter, r *http.Request) {
	header := http.Header{
		stagev1.HeaderNext: {r.Header.Get(stagev1.HeaderRequest)},
		"X-Stagecheck-Id":  r.Header["X-Stagecheck-Id"],
		"X-From-Yesterday": {"1"},
	}
	resp, err := s.call(r.Context(), r.Method, "/changed", header)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body)
}
