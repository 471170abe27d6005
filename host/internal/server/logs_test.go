package server

import (
	"testing"

	"github.com/catena-dev/catena/host/internal/config"
)

// Loggers that were made before the level was changed have the new one.
func TestLogLevelsCanChange(t *testing.T) {
	l := newLogs(config.Log{Level: "info", StageLevel: "warn", Format: "text"})
	host, stage := l.host.Named("front").With("a", 1), l.stages.Named("core").With("b", 2)
	if host.IsDebug() || stage.IsInfo() {
		t.Error("the levels at the start are others")
	}
	l.setLevels(config.Log{Level: "debug", StageLevel: "info"})
	if !host.IsDebug() || !stage.IsInfo() || stage.IsDebug() {
		t.Error("the levels have not changed")
	}
}
