package apiserver_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/klogr"
	"github.com/catena-dev/catena/sdk/stagetest"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// actAsStage makes the test binary a stage whose hook fails.
const actAsStage = "APISERVER_TEST_STAGE"

func TestMain(m *testing.M) {
	if os.Getenv(actAsStage) == "" {
		os.Exit(m.Run())
	}
	stage := apiStage(func(server *genericapiserver.GenericAPIServer) {
		server.AddPostStartHookOrDie("doomed", func(genericapiserver.PostStartHookContext) error {
			return errors.New("no luck")
		})
	})
	build := stage.New
	stage.New = func(env *sdk.Env) (http.Handler, error) {
		if err := klogr.Install(env.Log, "", ""); err != nil {
			return nil, err
		}
		return build(env)
	}
	sdk.Main(stage)
}

// TestFailingHookEndsTheProcess is about what Kubernetes does, and about what the
// host has to show then: the hook's name.
func TestFailingHookEndsTheProcess(t *testing.T) {
	t.Parallel()
	command := exec.Command(os.Args[0])
	command.Env = []string{actAsStage + "=1"}
	stage := stagetest.StartProcess(t, command, stagetest.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := stage.RPC.RunPostStartHook(ctx, &stagev1.RunHookRequest{Name: "doomed"}); err == nil || ctx.Err() != nil {
		t.Fatalf("hook: %v", err)
	}
	for !stage.Exited() {
		if ctx.Err() != nil {
			t.Fatal("the process lives on")
		}
		time.Sleep(10 * time.Millisecond)
	}
	lines := strings.Split(strings.TrimSpace(stage.Log()), "\n")
	last := lines[len(lines)-1]
	if !strings.Contains(last, `PostStartHook \"doomed\" failed: no luck`) || !strings.Contains(last, `"error"`) {
		t.Errorf("last line of the log is %s", last)
	}
}
