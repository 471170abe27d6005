//go:build linux

package stagecheck

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// The test binary is also the stage that is checked: with envMode set, it plays a stage
// that is good in all but what the mode says.
const envMode = "STAGECHECK_TEST_MODE"

func TestMain(m *testing.M) {
	if mode := os.Getenv(envMode); mode != "" {
		play(mode)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func play(mode string) {
	byHand := os.Getenv(stagev1.MagicCookieKey) == ""
	switch {
	case byHand && mode == "by-hand":
		time.Sleep(time.Hour)
	case byHand && mode == "by-hand-silent":
		os.Exit(1)
	case byHand:
		fmt.Fprintln(os.Stderr, "is a part of a test")
		os.Exit(1)
	case mode == "handshake":
		fmt.Println("hello")
		time.Sleep(time.Hour)
	}
	serve(mode)
}

func serve(mode string) {
	if mode != "signals" {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	}
	if mode != "host-death" {
		go exitWithHost()
	}
	fd, _ := strconv.Atoi(os.Getenv(stagev1.EnvListener))
	ln, err := net.FileListener(os.NewFile(uintptr(fd), "data"))
	if err != nil {
		panic(err)
	}
	log := hclog.New(&hclog.LoggerOptions{Output: os.Stderr, JSONFormat: true, Level: hclog.Info})
	b := &broken{mode: mode, stderr: os.Stderr}
	service, err := sdk.NewService(b.stage(), listener{ln, mode}, log)
	if err != nil {
		panic(err)
	}
	b.Service = service
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: stagev1.Handshake(), Plugins: stagev1.Plugins(b), Logger: log,
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server { return grpc.NewServer(opts...) },
	})
	if mode == "stop" {
		os.Exit(7)
	}
}

func exitWithHost() {
	fd, _ := strconv.Atoi(os.Getenv(stagev1.EnvParent))
	_, _ = os.NewFile(uintptr(fd), "parent").Read(make([]byte, 1))
	os.Exit(3)
}

// listener closes idle connections in the mode "idle".
type listener struct {
	net.Listener
	mode string
}

func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil && l.mode == "idle" {
		conn = &impatient{Conn: conn}
	}
	return conn, err
}

type impatient struct{ net.Conn }

func (c *impatient) Read(p []byte) (int, error) {
	if len(p) == 1 { // how net/http waits for another request
		return c.Conn.Read(p)
	}
	timer := time.AfterFunc(5*time.Second, func() { _ = c.Close() })
	defer timer.Stop()
	return c.Conn.Read(p)
}

// broken is a good stage but for its mode.
type broken struct {
	*sdk.Service
	mode      string
	stderr    *os.File
	described int
	env       *sdk.Env
	one       sync.Mutex
	leak      [][]byte
	conns     []net.Conn
}

func (b *broken) stage() sdk.Stage {
	schema := `{"type":"object"}`
	if b.mode == "schema" {
		schema = "{"
	}
	return sdk.Stage{Name: "test", Version: "v1.2.3", ConfigSchema: schema, New: b.build}
}

// Describe and the methods below are those of the service, but for the mode.
func (b *broken) Describe(ctx context.Context, r *stagev1.DescribeRequest) (*stagev1.DescribeResponse, error) {
	d, err := b.Service.Describe(ctx, r)
	b.described++
	switch {
	case b.mode == "name":
		d.Name = "other"
	case b.mode == "describe":
		d.Version = strconv.Itoa(b.described)
	case b.mode == "standby":
		d.Standby = true
	}
	return d, err
}

func (b *broken) ValidateConfig(ctx context.Context, r *stagev1.ValidateConfigRequest) (*stagev1.ValidateConfigResponse, error) {
	if b.mode == "config-good" {
		return &stagev1.ValidateConfigResponse{Problems: []*stagev1.ConfigProblem{{Key: "a", Message: "is wrong"}}}, nil
	}
	if b.mode == "config-silent" {
		if string(r.GetConfig()) != nonsense {
			return &stagev1.ValidateConfigResponse{}, nil
		}
		return &stagev1.ValidateConfigResponse{Problems: []*stagev1.ConfigProblem{{Key: "a"}}}, nil
	}
	return b.Service.ValidateConfig(ctx, r)
}

func (b *broken) Configure(ctx context.Context, r *stagev1.ConfigureRequest) (*stagev1.ConfigureResponse, error) {
	if b.mode == "standby" {
		r.Standby = false
	}
	return b.Service.Configure(ctx, r)
}

func (b *broken) PrepareRun(ctx context.Context, r *stagev1.PrepareRunRequest) (*stagev1.PrepareRunResponse, error) {
	switch b.mode {
	case "prepare":
		return nil, errors.New("no luck")
	case "unserved":
		return &stagev1.PrepareRunResponse{Claims: []*stagev1.Claim{{Path: "/test", Match: stagev1.Claim_PREFIX}}}, nil
	}
	resp, err := b.Service.PrepareRun(ctx, r)
	switch b.mode {
	case "claim-path":
		resp.Claims = append(resp.Claims, &stagev1.Claim{Path: "relative", Match: stagev1.Claim_EXACT})
	case "claim-match":
		resp.Claims = append(resp.Claims, &stagev1.Claim{Path: "/other", Match: 9})
	case "claim-hooks":
		resp.PostStartHooks = append(resp.PostStartHooks, "start", "start")
	case "watch":
		resp.Claims = append(resp.Claims, &stagev1.Claim{Path: "/other", Match: stagev1.Claim_EXACT})
	}
	return resp, err
}

func (b *broken) Notify(ctx context.Context, r *stagev1.NotifyRequest) (*stagev1.NotifyResponse, error) {
	if b.mode == "optional" {
		return nil, errors.New("what is that?")
	}
	return b.Service.Notify(ctx, r)
}

func (b *broken) CheckHealth(ctx context.Context, r *stagev1.CheckHealthRequest) (*stagev1.CheckHealthResponse, error) {
	if b.mode == "health" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return b.Service.CheckHealth(ctx, r)
}

func (b *broken) Drain(ctx context.Context, r *stagev1.DrainRequest) (*stagev1.DrainResponse, error) {
	if b.mode == "drain" {
		return &stagev1.DrainResponse{Running: 1}, nil
	}
	return b.Service.Drain(ctx, r)
}

func (b *broken) build(env *sdk.Env) (http.Handler, error) {
	b.env = env
	config := map[string]string{}
	if err := env.Config(&config); err != nil && b.mode != "config" {
		return nil, err
	}
	env.ClaimPrefix("/test")
	env.PostStartHook("start", func(context.Context) error { return b.fail("hooks") })
	env.PreShutdownHook("end", func(context.Context) error { return b.fail("pre-shutdown") })
	env.HealthCheck("well", sdk.HealthKinds{}, func(context.Context) error { return b.fail("sick") })
	mux := http.NewServeMux()
	mux.HandleFunc("/test/check/echo", b.echo)
	mux.HandleFunc("/test/check/trailers", b.trailers)
	mux.HandleFunc("/test/check/stream", b.stream)
	mux.HandleFunc("/test/check/upgrade", b.upgrade)
	mux.HandleFunc("/test/check/decline", b.decline)
	mux.HandleFunc("/test", b.hello)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b.misbehaves(w, r) {
			return
		}
		mux.ServeHTTP(w, r)
	}), nil
}

func (b *broken) fail(mode string) error {
	if b.mode == mode {
		return errors.New("no luck")
	}
	return nil
}

// misbehaves does what concerns all paths.
func (b *broken) misbehaves(w http.ResponseWriter, r *http.Request) bool {
	switch b.mode {
	case "large-head":
		if len(r.Header.Get("X-Stagecheck-Large")) > 8<<10 {
			w.WriteHeader(http.StatusRequestHeaderFieldsTooLarge)
			return true
		}
	case "closes":
		w.Header().Set("Connection", "close")
	case "head":
		if r.Method == http.MethodHead {
			conn, _, _ := http.NewResponseController(w).Hijack()
			fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
			_ = conn.Close()
			return true
		}
	case "expect":
		if r.Header.Get("Expect") != "" {
			<-r.Context().Done()
			return true
		}
	case "expect-decline":
		_, _ = r.Body.Read(make([]byte, 1))
		if r.Header.Get("Expect") != "" {
			w.Header().Set(stagev1.HeaderDecline, "1")
			return true
		}
	case "large-body":
		if r.ContentLength > 8<<20 {
			os.Exit(5)
		}
	case "concurrency":
		b.one.Lock()
		defer b.one.Unlock()
		_, _ = io.Copy(io.Discard, r.Body)
	case "cancellation":
		if r.Header.Get("Expect") != "" {
			conn, _, _ := http.NewResponseController(w).Hijack()
			b.conns = append(b.conns, conn)
			return true
		}
	case "memory":
		b.one.Lock()
		b.leak = append(b.leak, []byte(strings.Repeat("leak", 16<<10)))
		b.one.Unlock()
	case "logging":
		for range 10 {
			fmt.Fprintln(b.stderr, strings.Repeat("noise ", 40))
		}
	case "log-format":
		fmt.Fprintln(b.stderr, `{"@level":"loud","@message":"hello"}`)
	}
	return false
}

func (b *broken) hello(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") }

func (b *broken) decline(w http.ResponseWriter, r *http.Request) {
	switch b.mode {
	case "decline-read":
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set(stagev1.HeaderDecline, "1")
	case "decline-changed":
		_, _ = io.Copy(io.Discard, r.Body)
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader("other")), 5
		b.env.Call.ServeHTTP(w, r)
	default:
		sdk.Decline(w)
	}
}

func (b *broken) echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if b.mode == "echo" && len(body) > 100_000 {
		body[100_000] ^= 1
	}
	if b.mode == "slow-reader" {
		b.one.Lock()
		defer b.one.Unlock()
	}
	_, _ = w.Write(body)
}

func (b *broken) trailers(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Trailer", "X-Check-Trailer")
	_, _ = w.Write(body)
	if b.mode != "trailers" {
		w.Header().Set("X-Check-Trailer", r.Trailer.Get("X-Check-Trailer"))
	}
}

func (b *broken) stream(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintln(w, "begin")
	if b.mode != "streaming" {
		w.(http.Flusher).Flush()
	}
	done := b.env.Draining()
	if b.mode == "drain-stream" {
		done = nil
	}
	select {
	case <-r.Context().Done():
	case <-done:
	}
}

func (b *broken) upgrade(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") == "" || b.mode == "upgrade-not" {
		w.WriteHeader(http.StatusUpgradeRequired)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	if b.mode == "upgrade" {
		_, _ = io.CopyN(conn, rw, 1000)
		return
	}
	_, _ = io.Copy(conn, bufio.NewReader(rw))
}
