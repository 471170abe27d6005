package server

import (
	"github.com/catena-dev/catena/host/internal/datadir"
	"github.com/catena-dev/catena/host/internal/process"
)

// prepareRuntimeDir creates the directory for sockets and returns its absolute path: the
// first of datadir.Runtime that can be one. The caller holds the lock of the data
// directory.
func prepareRuntimeDir(dir, dataDir string, stages []string) (string, error) {
	choices, err := datadir.Runtime(dir, dataDir)
	if err != nil {
		return "", err
	}
	var first error
	for _, path := range choices {
		err := process.PrepareRuntimeDir(path, stages)
		if err == nil {
			return path, nil
		}
		if first == nil {
			first = err
		}
	}
	return "", first
}
