package declared

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/suggest"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// Attachments are the stages whose processes were started by hand, with the absolute
// directories of their sockets.
type Attachments map[string]string

// check refuses names that are not in the chain.
func (a Attachments) check(cfg *config.Config) error {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if !slices.Contains(cfg.Order, name) {
			return fmt.Errorf("--attach: there is no stage %q%s in the chain, which is %s", name,
				suggest.DidYouMean(name, cfg.Order), strings.Join(cfg.Order, ", "))
		}
	}
	return nil
}

// attachedTimeout is how long an attached process, which may be stopped at a breakpoint,
// can take for what a launched one has startTimeout for.
const attachedTimeout = 24 * time.Hour

// apply makes a stage an attached one if it is to be. Nothing is done to it that depends
// on time, or on what the host thinks of its health.
func (a Attachments) apply(spec *supervisor.Spec) {
	dir, ok := a[spec.Name]
	if !ok {
		return
	}
	spec.Attach, spec.Binary, spec.SHA256, spec.Digest = dir, "", "", ""
	spec.StartTimeout, spec.LivenessTimeout = attachedTimeout, 0
	spec.Standby, spec.Locked, spec.Rollback = false, false, supervisor.Rollback{}
}
