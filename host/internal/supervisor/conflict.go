package supervisor

import (
	"errors"
	"fmt"
	"strings"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/generation"
	"github.com/catena-dev/catena/sdk/claim"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// owned are the claims of a report on paths that the stage lists too: what it serves, and
// does not only want to see, as a stage does that looks at the requests for others.
func owned(r generation.Report) map[claim.Claim]bool {
	listed := make(map[string]bool, len(r.Paths))
	for _, path := range r.Paths {
		listed[path] = true
	}
	owned := map[claim.Claim]bool{}
	for _, c := range stagev1.DecodeClaims(r.Claims) {
		if path := strings.TrimSuffix(c.Path, "/"); listed[path] && !shared(path) {
			owned[c] = true
		}
	}
	return owned
}

// shared reports whether the stages of one API server stand side by side below a path.
func shared(path string) bool {
	return path == "" || path == "/api" || path == "/apis" || path == "/openapi" || strings.HasPrefix(path, "/openapi/")
}

// conflict refuses a change by which two stages come to serve the same path: the one
// downstream would never get a request for it again, and that would not be noticed.
func (c *change) conflict() error {
	all := make([]map[claim.Claim]bool, len(c.members))
	for i, m := range c.members {
		all[i] = owned(m.report())
	}
	var errs []error
	more := 0
	for i, m := range c.members {
		if m.generation == nil {
			continue
		}
		before := map[claim.Claim]bool{}
		if !c.added[m.stage] {
			before = owned(m.stage.reportOf())
		}
		for mine := range all[i] {
			for j, other := range c.members {
				switch {
				case i == j || before[mine] || !all[j][mine]:
				case len(errs) == bounds.Conflicts:
					more++
				default:
					errs = append(errs, fmt.Errorf("stage %q would serve %s, which stage %q serves", m.spec.Name,
						mine.Path, other.spec.Name))
				}
			}
		}
	}
	if more > 0 {
		errs = append(errs, fmt.Errorf("and %d more such paths", more))
	}
	return errors.Join(errs...)
}

func (s *stage) reportOf() generation.Report {
	held := s.of.lock()
	defer held.unlock()
	return s.guarded.report()
}
