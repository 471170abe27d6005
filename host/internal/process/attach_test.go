//go:build linux

package process

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// waiting starts a stage in this process that waits for a host.
func waiting(t *testing.T, dir string, sockets ...string) {
	t.Helper()
	server := grpc.NewServer()
	stagev1.RegisterStageServer(server, &testStage{})
	t.Cleanup(server.Stop)
	for _, name := range sockets {
		ln, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		if name == stagev1.DebugControlSocket {
			go func() { _ = server.Serve(ln) }()
		}
	}
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "att")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestAttachRefuses(t *testing.T) {
	t.Parallel()
	both := []string{stagev1.DebugControlSocket, stagev1.DebugDataSocket}
	for _, tc := range []struct {
		name, want, stage string
		sockets           []string
		change            func(dir string) error
	}{
		{name: "open to others", want: "must keep other users out", sockets: both, change: func(dir string) error { return os.Chmod(dir, 0o750) }},
		{name: "of another user", want: "belongs to user 12345", sockets: both, change: func(dir string) error { return os.Chown(dir, 12345, 12345) }},
		{name: "another stage", want: `reports the name "test", but is configured as "other"`, stage: "other", sockets: both},
		{name: "no process", want: "no process to attach to"},
		{name: "no data socket", want: "data socket", sockets: both[:1]},
		{name: "file", want: "is not a directory", change: func(dir string) error {
			if err := os.Remove(dir); err != nil {
				return err
			}
			return os.WriteFile(dir, nil, 0o600)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := shortDir(t)
			waiting(t, dir, tc.sockets...)
			if tc.change != nil {
				if err := tc.change(dir); err != nil {
					t.Skip(err) // only root can give files away
				}
			}
			if tc.stage == "" {
				tc.stage = "test"
			}
			a, err := Attach(t.Context(), Spec{Stage: tc.stage, Attach: dir, AttachWait: time.Second, StartTimeout: patience})
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), tc.stage) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if err == nil {
				_ = a.Kill(t.Context())
			}
		})
	}
}

// An attached process waits for as long as it likes, and is not killed.
func TestAttachDoesNotKill(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	waiting(t, dir, stagev1.DebugControlSocket, stagev1.DebugDataSocket)
	a, err := Attach(t.Context(), Spec{Stage: "test", Attach: dir})
	if err != nil {
		t.Fatal(err)
	}
	if a.PID() != os.Getpid() || a.Err() != nil || a.Description().GetName() != "test" {
		t.Errorf("process %d, %v, %v", a.PID(), a.Err(), a.Description())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = a.Client().Configure(ctx, &stagev1.ConfigureRequest{Config: []byte("wait")})
	if err == nil || !strings.Contains(err.Error(), `stage "test": Configure: no response in time`) {
		t.Errorf("configure: %v", err)
	}
	if err := a.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v", err)
	}
	<-a.Done()
	if err := a.Err(); err == nil || !strings.Contains(err.Error(), "detached") {
		t.Errorf("afterwards: %v", err)
	}
}
