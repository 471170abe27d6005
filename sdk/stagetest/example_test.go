package stagetest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
)

// t is what a test gets.
var t testing.TB

// A stage in the test's own process, with a handler for what it passes on.
func ExampleStart() {
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "next") })
	stage := stagetest.Start(t, sdk.Stage{Name: "hello", New: hello}, stagetest.Options{Next: next})

	if got := stage.Get(t, "/hello"); got.Status != http.StatusOK || got.Body != "hello somebody" {
		t.Errorf("%d %q", got.Status, got.Body)
	}
	if got := stage.Get(t, "/hello/you"); !got.Declined || got.Body != "next" {
		t.Errorf("declined: %t, %q", got.Declined, got.Body)
	}
	if !stage.Claimed("/hello") || stage.Claimed("/other") {
		t.Errorf("claims: %v", stage.Claims())
	}
}

// The stage of this directory as a process of its own, as a host runs it.
func ExampleStartProcess() {
	stage := stagetest.StartProcess(t, stagetest.Build(t, "."), stagetest.Options{Config: map[string]any{"greeting": "hello"}})
	if got := stage.Get(t, "/hello"); got.Body != "hello\n" {
		t.Errorf("%d %q", got.Status, got.Body)
	}
	stage.Stop(t)
	if code := stage.ExitCode(); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

// A user, a body, and what the stage has added for the audit log and for the client.
func ExampleStage_Do() {
	var stage *stagetest.Stage
	got := stage.Do(t, stagetest.Call{
		Method: http.MethodDelete, Path: "/api/v1/namespaces/default/pods/a",
		User: &sdk.User{Name: "jane", Groups: []string{"devs"}},
	})
	if got.Status != http.StatusForbidden || got.Annotations["example.com/refused"] != "true" || len(got.Warnings) > 0 {
		t.Errorf("%+v", got)
	}
}

// Claims that a stage makes when it has found out what it serves.
func ExampleStage_AwaitClaimed() {
	var stage *stagetest.Stage
	stage.RunPostStartHooks(t)
	stage.AwaitSignals(t)
	stage.AwaitClaimed(t, "/found", true)
}

// What operators see of a stage.
func ExampleStage_Health() {
	var stage *stagetest.Stage
	if failed := stage.Health(t); len(failed) > 0 {
		t.Errorf("checks fail: %v", failed)
	}
	if !strings.Contains(stage.Metrics(t), "hits_total 1\n") {
		t.Error("the hit was not counted")
	}
	if problems := stage.Problems(t, map[string]any{"gretting": "hi"}); len(problems) != 1 {
		t.Errorf("a wrong key is no problem: %q", problems)
	}
}
