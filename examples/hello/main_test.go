package main

import (
	"net/http"
	"testing"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
)

func TestHello(t *testing.T) {
	stage := stagetest.Start(t, sdk.Stage{Name: "hello", New: hello}, stagetest.Options{})
	if got := stage.Get(t, "/hello"); got.Status != http.StatusOK || got.Body != "hello\n" {
		t.Errorf("%d %q", got.Status, got.Body)
	}
	if !stage.Claimed("/hello") || stage.Claimed("/hello/you") || stage.Claimed("/") {
		t.Errorf("claims %v", stage.Claims())
	}
}

// The same, as the host runs it.
func TestProcess(t *testing.T) {
	stage := stagetest.StartProcess(t, stagetest.Build(t, "."), stagetest.Options{})
	if got := stage.Get(t, "/hello"); got.Body != "hello\n" {
		t.Errorf("%d %q", got.Status, got.Body)
	}
	stage.Stop(t)
	if code := stage.ExitCode(); code != 0 {
		t.Errorf("exit status %d", code)
	}
}
