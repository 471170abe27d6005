package supervisor

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// claim is a claim in a form that == compares.
type claim struct {
	path  string
	match stagev1.Claim_Match
}

// owned are the claims of a report on paths that the stage lists too: what it says that
// it serves, and not only wants to see, as a stage does that looks at the requests for
// others.
func (r report) owned() map[claim]bool {
	owned := map[claim]bool{}
	for _, c := range r.claims {
		if path := strings.TrimSuffix(c.GetPath(), "/"); slices.Contains(r.paths, path) && !shared(path) {
			owned[claim{c.GetPath(), c.GetMatch()}] = true
		}
	}
	return owned
}

// shared are paths below which the stages of one API server stand side by side.
func shared(path string) bool {
	return path == "" || path == "/api" || path == "/apis" || path == "/openapi" || strings.HasPrefix(path, "/openapi/")
}

// collide refuses a change by which two stages come to serve the same path: the one
// behind would never get a request for it again, and nobody would notice.
func (c *change) collide() error {
	var errs []error
	for i, l := range c.links {
		if l.generation == nil {
			continue
		}
		before := map[claim]bool{}
		if !l.added {
			before = l.stage.latest().owned()
		}
		for mine := range l.generation.reported().owned() {
			for j, other := range c.links {
				if i != j && !before[mine] && other.report().owned()[mine] {
					errs = append(errs, fmt.Errorf("stage %q would serve %s, which stage %q serves", l.spec.Name, mine.path, other.spec.Name))
				}
			}
		}
	}
	return errors.Join(errs...)
}
