package server

import (
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/cgroup"
)

// endLeftBehind ends what the stages of a host that was killed have left, and returns the name of the
// groups of this one. The data directory is locked.
func endLeftBehind(dataDir string, log hclog.Logger) string {
	name, err := cgroup.Name(dataDir)
	if err != nil {
		log.Debug("stages get no cgroups", "error", err)
		return ""
	}
	if err := cgroup.Clean(name); err != nil {
		log.Warn("processes that stages of an earlier run have left may still run", "error", err)
	}
	return name
}

// cgroups opens the groups of the stages when the first stage needs one.
type cgroups struct {
	name string
	log  hclog.Logger

	mu     sync.Mutex
	opened bool
	tree   *cgroup.Tree
}

func (c *cgroups) open() *cgroup.Tree {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opened || c.name == "" {
		return c.tree
	}
	c.opened, c.tree = true, cgroup.Open(c.name)
	if err := c.tree.Err(); err != nil {
		c.log.Debug("stages get no cgroups", "error", err)
	}
	return c.tree
}

func (c *cgroups) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tree.Close()
}
