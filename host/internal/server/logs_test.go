package server

import (
	"bytes"
	"context"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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
	l.apply(config.Log{Level: "debug", StageLevel: "info", Format: "text"})
	if !host.IsDebug() || !stage.IsInfo() || stage.IsDebug() {
		t.Error("the levels have not changed")
	}
}

// Unless the configuration says more, Kubernetes' stages log what matters to operators, and others all that they say, before and after a reload.
func TestLevelsOfStagesByDefault(t *testing.T) {
	l := newLogs(config.Log{Level: "info", StageLevel: config.LevelAuto, Format: "text"})
	check := func(want bool, names ...string) {
		t.Helper()
		for _, name := range names {
			if l.stage(name).IsInfo() != want || !l.stage(name).IsWarn() || l.stage(name).IsDebug() {
				t.Errorf("%s logs at %s", name, l.stage(name).GetLevel())
			}
		}
	}
	check(false, "core", "controllers")
	check(true, "hello")
	l.apply(config.Log{Level: "info", StageLevel: "warn", Format: "text"})
	check(false, "core", "hello")
	if changed := l.apply(config.Log{Level: "info", StageLevel: config.LevelAuto, Format: "text"}); len(changed) != 1 || changed[0] != "hello" {
		t.Errorf("the level of %q has changed", changed)
	}
	check(false, "core", "extensions")
	check(true, "hello", "late")
	if l.libraries.IsInfo() {
		t.Error("Kubernetes' code in the host logs at info")
	}
}

// Loggers that were made before the format was changed write in the new one, and in all a duration can be read.
func TestLogFormatCanChange(t *testing.T) {
	var out bytes.Buffer
	var format atomic.Pointer[string]
	set := func(f string) { format.Store(&f) }
	set(config.TextLog)
	root := newLogger(config.LogFormats(), &format, func(format string) hclog.Logger {
		o := logOptions(format, &out)
		o.Level = hclog.Warn
		return hclog.New(&o)
	})
	log := root.Named("front").With("waited", 1500*time.Millisecond)
	standard := log.StandardLogger(&hclog.StandardLoggerOptions{InferLevels: true})
	for f, want := range map[string]string{
		config.TextLog:     `[WARN]  catena.front: late: waited=1.5s took=2s`,
		config.JSONLog:     `"@message":"late","@module":"catena.front"`,
		config.KlogLog:     `catena.front:1] "late" took="2s" waited="1.5s"`,
		config.KlogJSONLog: `"logger":"catena.front","msg":"late","took":"2s","ts":`,
	} {
		set(f)
		out.Reset()
		log.Info("not at this level")
		log.Warn("late", "took", 2*time.Second)
		if got := out.String(); !strings.Contains(got, want) || strings.Count(got, "\n") != 1 || f == config.JSONLog && !strings.Contains(got, `"took":"2s","waited":"1.5s"`) {
			t.Errorf("%s: %q, want %q", f, got, want)
		}
		out.Reset()
		standard.Print("[ERROR] from elsewhere")
		if got := out.String(); !strings.Contains(got, "from elsewhere") || (f == config.KlogLog) != strings.HasPrefix(got, "E") {
			t.Errorf("%s: a line of the standard logger is %q", f, got)
		}
	}
	root.SetLevel(hclog.Info)
	for f := range root.formats {
		set(f)
		if out.Reset(); log.IsDebug() || !log.IsInfo() {
			t.Errorf("%s: the level has not changed", f)
		}
		if log.Info("now"); out.Len() == 0 {
			t.Errorf("%s: a line of the new level is missing", f)
		}
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
