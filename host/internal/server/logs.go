package server

import (
	"os"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/config"
)

// logs are the logger of the host, and that of the code that it logs for: the stages,
// Kubernetes' code in the host and etcd. Each has a level of its own.
type logs struct{ host, stages hclog.Logger }

func newLogs(l config.Log) *logs {
	var output sync.Mutex
	logger := func(level string) hclog.Logger {
		return hclog.New(&hclog.LoggerOptions{
			Name: "catena", Level: hclog.LevelFromString(level), JSONFormat: l.Format == "json",
			Output: os.Stderr, Mutex: &output,
		})
	}
	return &logs{logger(l.Level), logger(l.StageLevel)}
}

// setLevels changes the levels of all loggers that were made from these two.
func (l *logs) setLevels(c config.Log) {
	l.host.SetLevel(hclog.LevelFromString(c.Level))
	l.stages.SetLevel(hclog.LevelFromString(c.StageLevel))
}
