package supervisor

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/catena-dev/catena/host/internal/supervisor/generation"
	"github.com/catena-dev/catena/sdk/claim"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// owned are the claims of a report on paths that the stage lists too: what it serves, and
// does not only want to see, as a stage does that looks at the requests for others.
func owned(r generation.Report) map[claim.Claim]bool {
	owned := map[claim.Claim]bool{}
	for _, c := range stagev1.DecodeClaims(r.Claims) {
		if path := strings.TrimSuffix(c.Path, "/"); slices.Contains(r.Paths, path) && !shared(path) {
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
	var errs []error
	for i, m := range c.members {
		if m.generation == nil {
			continue
		}
		before := map[claim.Claim]bool{}
		if !c.added[m.stage] {
			before = owned(c.supervisor.reportOf(m.stage))
		}
		for mine := range owned(m.generation.Report()) {
			for j, other := range c.members {
				if i != j && !before[mine] && owned(other.report())[mine] {
					errs = append(errs, fmt.Errorf("stage %q would serve %s, which stage %q serves", m.spec.Name, mine.Path, other.spec.Name))
				}
			}
		}
	}
	return errors.Join(errs...)
}

func (s *Supervisor) reportOf(st *stage) generation.Report {
	s.lock()
	defer s.unlock()
	return st.report()
}
