package server

import (
	"os"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/store"
)

// logs are the logger of the host, and that of the code that it logs for: the stages,
// Kubernetes' code in the host and etcd. Each has a level of its own.
type logs struct {
	host, stages hclog.Logger
	// dataDir is the lock of the data directory while the server holds it.
	dataDir atomic.Pointer[store.DirLock]
}

func newLogs(c config.Log) *logs {
	var output sync.Mutex
	l := &logs{}
	logger := func(level string, exclude func(hclog.Level, string, ...any) bool) hclog.Logger {
		return hclog.New(&hclog.LoggerOptions{
			Name: "catena", Level: hclog.LevelFromString(level), JSONFormat: c.Format == "json",
			Output: os.Stderr, Mutex: &output, Exclude: exclude,
		})
	}
	l.host, l.stages = logger(c.Level, nil), logger(c.StageLevel, l.isConsequence)
	return l
}

// isConsequence reports whether a message is about what has failed because the data directory is
// lost. The server ends with that error: it needs no others.
func (l *logs) isConsequence(level hclog.Level, _ string, _ ...any) bool {
	lock := l.dataDir.Load()
	return level >= hclog.Warn && lock != nil && lock.Check() != nil
}

// setLevels changes the levels of all loggers that were made from these two.
func (l *logs) setLevels(c config.Log) {
	l.host.SetLevel(hclog.LevelFromString(c.Level))
	l.stages.SetLevel(hclog.LevelFromString(c.StageLevel))
}
