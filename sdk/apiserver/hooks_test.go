package apiserver_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/routes"

	"github.com/catena-dev/catena/sdk/apiserver"
	"github.com/catena-dev/catena/sdk/stagetest"
	"github.com/catena-dev/catena/sdk/stagev1"
)

func runPostStartHook(t *testing.T, stage *stagetest.Stage, name string) error {
	_, err := stage.RPC.RunPostStartHook(t.Context(), &stagev1.RunHookRequest{Name: name})
	return err
}

func runPreShutdownHook(t *testing.T, stage *stagetest.Stage, name string) error {
	_, err := stage.RPC.RunPreShutdownHook(t.Context(), &stagev1.RunHookRequest{Name: name})
	return err
}

func TestPostStartHooksRunOneByOne(t *testing.T) {
	t.Parallel()
	var started atomic.Bool
	release := make(chan struct{})
	stage := stagetest.Launch(t, apiStage(func(server *genericapiserver.GenericAPIServer) {
		server.AddPostStartHookOrDie("quick", func(genericapiserver.PostStartHookContext) error { return nil })
		server.AddPostStartHookOrDie("slow", func(genericapiserver.PostStartHookContext) error {
			started.Store(true)
			<-release
			return nil
		})
	}), stagetest.Options{})
	prepare(t, stage)
	if got := results(t, stage)["poststarthook/quick"]; got != "not finished" {
		t.Errorf("before it has run, the check of a hook says %q", got)
	}
	if err := runPostStartHook(t, stage, "quick"); err != nil {
		t.Fatal(err)
	}
	if got := results(t, stage); got["poststarthook/quick"] != "" || got["poststarthook/slow"] != "not finished" || got["only-ready"] != "not today" {
		t.Errorf("checks say %v", got)
	}
	done := make(chan error, 1)
	if started.Load() {
		t.Error("the slow hook runs before the host has asked for it")
	}
	go func() { done <- runPostStartHook(t, stage, "slow") }()
	eventually(t, "the slow hook runs", started.Load)
	select {
	case err := <-done:
		t.Fatalf("slow hook came back before it was done: %v", err)
	default:
	}
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := results(t, stage)["poststarthook/slow"]; got != "" {
		t.Errorf("the check of the hook says %q", got)
	}
}

func TestBeforePostStartHook(t *testing.T) {
	t.Parallel()
	var before []string // the stage runs hooks that the host asks for one after the other
	stage := stagetest.Launch(t, apiStageOf(func(server *apiserver.Server) {
		server.BeforePostStartHook = func(_ context.Context, name string) { before = append(before, "before "+name) }
		server.AddPostStartHookOrDie("mine", func(genericapiserver.PostStartHookContext) error {
			before = append(before, "mine")
			return nil
		})
	}), stagetest.Options{})
	prepare(t, stage)
	if err := runPostStartHook(t, stage, "mine"); err != nil {
		t.Fatal(err)
	}
	if want := []string{"before mine", "mine"}; !slices.Equal(before, want) {
		t.Errorf("called are %q, want %q", before, want)
	}
}

func TestPreShutdownHooksRunOneByOne(t *testing.T) {
	t.Parallel()
	var good atomic.Int32
	stage := stagetest.Start(t, apiStage(func(server *genericapiserver.GenericAPIServer) {
		server.AddPreShutdownHookOrDie("good", func() error { good.Add(1); return nil })
		server.AddPreShutdownHookOrDie("bad", func() error { return errors.New("too late") })
	}), stagetest.Options{})
	if want := []string{"bad", "good"}; !slices.Equal(stage.Prepared.PreShutdownHooks, want) {
		t.Fatalf("pre-shutdown hooks are %q, want %q", stage.Prepared.PreShutdownHooks, want)
	}
	if err := runPreShutdownHook(t, stage, "bad"); err == nil || !strings.HasSuffix(err.Error(), "desc = too late") {
		t.Errorf("error of the hook: %v", err)
	}
	if n := good.Load(); n != 0 {
		t.Errorf("another hook has run %d times with it", n)
	}
	if err := runPreShutdownHook(t, stage, "good"); err != nil || good.Load() != 1 {
		t.Errorf("error %v, has run %d times", err, good.Load())
	}
}

// Pre-shutdown hooks of the whole server do not run in a process that is drained first,
// which another has taken the place of.
func TestPreShutdownWithServer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ withServer, drained, runs bool }{
		"server stops":             {withServer: true, runs: true},
		"process replaced":         {withServer: true, drained: true},
		"hook of process":          {runs: true},
		"hook of replaced process": {drained: true, runs: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ran atomic.Bool
			stage := stagetest.Start(t, apiStageOf(func(server *apiserver.Server) {
				server.PreShutdownWithServer = c.withServer
				server.AddPreShutdownHookOrDie("leave", func() error { ran.Store(true); return nil })
			}), stagetest.Options{})
			if c.drained {
				stage.Drain(t, time.Second)
			}
			if err := runPreShutdownHook(t, stage, "leave"); err != nil {
				t.Fatal(err)
			}
			if ran.Load() != c.runs {
				t.Errorf("the hook has run: %v, want %v", ran.Load(), c.runs)
			}
		})
	}
}

func TestDebugSocketEndsWithTheStage(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "debug")
	stage := stagetest.Start(t, apiStage(func(server *genericapiserver.GenericAPIServer) {
		server.UnprotectedDebugSocket = routes.NewDebugSocket(path)
	}), stagetest.Options{})
	eventually(t, "the debug socket is there", func() bool {
		conn, err := net.Dial("unix", path)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	stage.Stop(t)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the debug socket is left: %v", err)
	}
	if strings.Contains(stage.Log(), "ERROR") {
		t.Errorf("log:\n%s", stage.Log())
	}
}

// prepare starts a stage without its hooks.
func prepare(t *testing.T, stage *stagetest.Stage) {
	t.Helper()
	if err := errors.Join(stage.Configure(), stage.PrepareRun()); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}
