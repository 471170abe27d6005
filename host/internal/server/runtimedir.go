package server

import (
	"fmt"

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
	var all []error
	for _, path := range choices {
		err := process.PrepareRuntimeDir(path, stages)
		if err == nil {
			return path, nil
		}
		all = append(all, err)
	}
	if len(all) == 1 {
		return "", all[0]
	}
	// The last one has a name that others can foresee, in a directory that may be theirs too.
	return "", fmt.Errorf("%w; set runtimeDir to a directory that no other user can write to (the one beside the data does not serve: %w)", all[len(all)-1], all[0])
}
