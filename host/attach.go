package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// attachments are the stages that are processes which were started by hand, with the
// folders of their sockets.
type attachments map[string]string

// parseAttachments takes what --attach was given: NAME or NAME=FOLDER.
func parseAttachments(values []string) (attachments, error) {
	all := attachments{}
	for _, value := range values {
		name, dir, given := strings.Cut(value, "=")
		if name == "" || given && dir == "" {
			return nil, fmt.Errorf("--attach %s: want the name of a stage, or NAME=FOLDER", value)
		}
		if all[name] != "" {
			return nil, fmt.Errorf("--attach: stage %q is named twice", name)
		}
		if !given {
			dir = stagev1.DebugDir(name)
		}
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, fmt.Errorf("--attach %s: %w", value, err)
		}
		all[name] = abs
	}
	return all, nil
}

// check refuses names that are not in the chain.
func (a attachments) check(cfg *config.Config) error {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if !slices.Contains(cfg.Order, name) {
			return fmt.Errorf("--attach: there is no stage %q in the chain, which is %s", name, strings.Join(cfg.Order, ", "))
		}
	}
	return nil
}

// patience is how long an attached process, which may stand at a breakpoint, can take
// for what a launched one has startTimeout for.
const patience = 24 * time.Hour

// apply makes a stage an attached one if it is to be. Nothing that a clock or the
// host's judgement would do to it is done.
func (a attachments) apply(spec *supervisor.Spec) {
	dir, ok := a[spec.Name]
	if !ok {
		return
	}
	spec.Attach, spec.Binary, spec.SHA256, spec.Digest = dir, "", "", ""
	spec.StartTimeout, spec.LivenessTimeout = patience, 0
	spec.Standby, spec.Rollback = false, supervisor.Rollback{}
}
