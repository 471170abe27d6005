package server

import (
	"context"
	"os"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/config"
)

// Loggers that were made before the level was changed have the new one.
func TestLogLevelsCanChange(t *testing.T) {
	l := newLogs(config.Log{Level: "info", StageLevel: "warn", Format: "text"})
	host, stage := l.host.Named("front").With("a", 1), l.stage("core").Named("sub").With("b", 2)
	if host.IsDebug() || stage.IsInfo() {
		t.Error("the levels at the start are others")
	}
	l.setLevels(config.Log{Level: "debug", StageLevel: "info"})
	if !host.IsDebug() || !stage.IsInfo() || stage.IsDebug() {
		t.Error("the levels have not changed")
	}
}

// What stages and etcd complain about when their start is interrupted is not the cause.
func TestInterruptedStartIsTheOnlyLine(t *testing.T) {
	l := newLogs(config.Log{Level: "info", StageLevel: "warn", Format: "text"})
	if l.isConsequence(hclog.Error, "timed out waiting for caches to sync") {
		t.Error("an error of a server that runs is left out")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(Stopped{Signal: os.Interrupt})
	if r := (&run{logs: l}); !r.interrupted(ctx) {
		t.Fatal("the start is not interrupted")
	}
	if !l.isConsequence(hclog.Error, "timed out waiting for caches to sync") {
		t.Error("an error after the interruption is logged")
	}
}

// What a start that has failed leaves behind is not its cause: Run returns that.
func TestFailedStartIsTheOnlyError(t *testing.T) {
	l := newLogs(config.Log{Level: "info", StageLevel: "warn", Format: "text"})
	if l.startFailed(hclog.Warn, "stage did not stop by itself") {
		t.Error("a warning of a server that runs is left out")
	}
	l.failed.Store(true)
	if !l.startFailed(hclog.Warn, "stage did not stop by itself") || !l.isConsequence(hclog.Error, "context canceled") {
		t.Error("an error after the failure is logged")
	}
	if l.startFailed(hclog.Info, "no longer serving") {
		t.Error("the host says nothing more")
	}
}
