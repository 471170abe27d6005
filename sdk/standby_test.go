package sdk_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// A standby does all that a stage does up to its first request, and leaves the requests in
// the socket to the process that serves, until it is activated.
func TestStandby(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	hooked := make(chan struct{})
	service, err := sdk.NewService(sdk.Stage{Name: "test", New: func(env *sdk.Env) (http.Handler, error) {
		env.PostStartHook("warm", func(context.Context) error { close(hooked); return nil })
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }), nil
	}}, ln, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close()
	ctx := t.Context()
	activate := func() codes.Code {
		_, err := service.Activate(ctx, &stagev1.ActivateRequest{})
		return status.Code(err)
	}
	if code := activate(); code != codes.FailedPrecondition {
		t.Errorf("activated before it was prepared: %s", code)
	}
	if _, err := service.Configure(ctx, &stagev1.ConfigureRequest{Name: "test", Standby: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := service.PrepareRun(ctx, &stagev1.PrepareRunRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := service.RunPostStartHook(ctx, &stagev1.RunHookRequest{Name: "warm"}); err != nil {
		t.Fatal(err)
	}
	<-hooked
	status := make(chan int, 1)
	ask := func() {
		client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}}
		defer client.CloseIdleConnections()
		resp, err := client.Get("http://stage/")
		if err != nil {
			t.Error(err)
			status <- 0
			return
		}
		resp.Body.Close()
		status <- resp.StatusCode
	}
	// The test is the process that serves.
	for range 20 {
		go ask()
		_ = ln.(*net.UnixListener).SetDeadline(time.Now().Add(time.Minute))
		conn, err := ln.Accept()
		if err != nil {
			t.Fatalf("the standby has taken a request: %v", err)
		}
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
		if code := <-status; code != http.StatusNoContent {
			t.Fatalf("a standby has responded: %d", code)
		}
		conn.Close()
	}
	_ = ln.(*net.UnixListener).SetDeadline(time.Time{})
	go ask()
	if code := activate(); code != codes.OK {
		t.Errorf("activate: %s", code)
	}
	if code := <-status; code != http.StatusTeapot {
		t.Errorf("the request that waited: %d", code)
	}
	if code := activate(); code != codes.FailedPrecondition {
		t.Errorf("activated twice: %s", code)
	}
}

// A signal closes its channel, whether the stage asks before it comes or after.
func TestSignal(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	var env *sdk.Env
	service, err := sdk.NewService(sdk.Stage{Name: "test", New: func(e *sdk.Env) (http.Handler, error) {
		env = e
		return nil, nil
	}}, ln, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close()
	if _, err := service.Configure(t.Context(), &stagev1.ConfigureRequest{Name: "test"}); err != nil {
		t.Fatal(err)
	}
	before, other := env.Signal("HasBeenReady"), env.Signal("ShutdownInitiated")
	for range 2 { // a host may say it twice
		if _, err := service.Notify(t.Context(), &stagev1.NotifyRequest{Signal: "HasBeenReady"}); err != nil {
			t.Fatal(err)
		}
	}
	<-before
	<-env.Signal("HasBeenReady")
	select {
	case <-other:
		t.Error("a signal that has not come")
	default:
	}
}
