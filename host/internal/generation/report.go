package generation

import (
	"slices"

	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Report is what a stage reports of itself.
type Report struct {
	// Paths are for the index at /.
	Paths  []string
	Claims []*stagev1.Claim
	// KubernetesVersion is the minor version of Kubernetes as which the stage serves; empty if it
	// does not describe one.
	KubernetesVersion string
	// Optional reports whether the server is ready without the stage.
	Optional bool
	// builtIn is the release of Kubernetes that the built-in resources are of, and the version as which they are served;
	// empty if the stage does not have them.
	builtIn string
	// configured are the paths that Configure reported: those that the stages upstream
	// are told of.
	configured []string
}

// Report returns what the stage reports.
func (g *Generation) Report() Report {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inherited != nil {
		return *g.inherited
	}
	return g.report
}

// setReport is called by one goroutine at a time. It does not log under mu: the log may be
// slow, and Report is called under the lock of the supervisor.
func (g *Generation) setReport(paths []string, claims []*stagev1.Claim) {
	good := g.valid(claims)
	paths = g.listed(paths, good)
	g.mu.Lock()
	g.report.Paths, g.report.Claims = paths, good
	g.mu.Unlock()
	g.logShadowed(good)
}

// Inherit makes the report of the generation before count until all signals have come.
// Until then a stage may claim what is not its own, and would keep it from the others.
func (g *Generation) Inherit(before Report) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.pending) > 0 {
		g.inherited = &before
	}
}

// Complete reports whether the stage knows all of its paths: all of its mux-and-discovery
// signals have come.
func (g *Generation) Complete() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.pending) == 0
}

// signaled takes note of signals that have come.
func (g *Generation) signaled(names []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range names {
		delete(g.pending, name)
	}
	if len(g.pending) == 0 {
		g.inherited = nil
	}
}

// Delegates are the stages downstream, as the stage was told when it was configured.
func (g *Generation) Delegates() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	names := make([]string, len(g.downstream))
	for i, d := range g.downstream {
		names[i] = d.Stage
	}
	return names
}

// Knows reports whether the stage was told of these stages downstream, with these paths, and with
// built-in resources of the same release of Kubernetes, whose documents it may keep.
func (g *Generation) Knows(downstream []lifecycle.Report[Report]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.EqualFunc(g.downstream, downstream, func(a, b lifecycle.Report[Report]) bool {
		return a.Stage == b.Stage && a.Report.builtIn == b.Report.builtIn && samePaths(a.Report.configured, b.Report.configured)
	})
}

func samePaths(a, b []string) bool {
	return slices.Equal(slices.Compact(slices.Sorted(slices.Values(a))), slices.Compact(slices.Sorted(slices.Values(b))))
}

// Stage makes the generations known, by stage, that are brought up in the same change and
// do not serve yet; nil when that is over.
func (g *Generation) Stage(staged map[string]*Generation) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.staged = staged
}

// Staged returns what Stage made known. The map must not be changed.
func (g *Generation) Staged() map[string]*Generation {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.staged
}
