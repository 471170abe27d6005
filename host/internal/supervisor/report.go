package supervisor

import (
	"slices"

	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// report is what a stage says of itself.
type report struct {
	paths  []string
	claims []*stagev1.Claim
	// configured are the paths that Configure reported. Others are told of the paths when
	// they are configured, so that a change of these concerns them.
	configured []string
}

// delegates are the stages behind it, as it has been told.
func (g *generation) delegates() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	names := make([]string, len(g.behind))
	for i, b := range g.behind {
		names[i] = b.Stage
	}
	return names
}

// reachable are the sockets of delegates that do not serve in the chain yet.
func (g *generation) reachable() map[string]string {
	if staged := g.staged.Load(); staged != nil {
		return *staged
	}
	return nil
}

func (g *generation) setReport(paths []string, claims []*stagev1.Claim) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.report.paths, g.report.claims = paths, g.accept(claims)
	g.tellVain(g.report.claims)
}

func (g *generation) reported() report {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inherited != nil {
		return *g.inherited
	}
	return g.report
}

// inherit makes what the generation before reported hold until all signals have come.
// Until then a stage may claim what is not its own, and would keep it from the others.
func (g *generation) inherit(before report) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.complete() {
		g.inherited = &before
	}
}

// complete tells whether all signals have come. The caller holds mu.
func (g *generation) complete() bool {
	for _, signal := range g.signals {
		select {
		case <-signal:
		default:
			return false
		}
	}
	return true
}

// signaled closes the channels of the signals of those names. It returns whether what
// the generation reports has changed by that.
func (g *generation) signaled(names []string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range names {
		ch, ok := g.signals[name]
		if !ok {
			continue
		}
		select {
		case <-ch:
		default:
			close(ch)
		}
	}
	if g.inherited == nil || !g.complete() {
		return false
	}
	g.inherited = nil
	return true
}

// knows tells whether the generation was told of these paths of the stages behind it.
func (g *generation) knows(behind []lifecycle.Report[report]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.EqualFunc(g.behind, behind, func(a, b lifecycle.Report[report]) bool {
		return a.Stage == b.Stage && samePaths(a.Report.configured, b.Report.configured)
	})
}

func samePaths(a, b []string) bool {
	return slices.Equal(slices.Compact(slices.Sorted(slices.Values(a))), slices.Compact(slices.Sorted(slices.Values(b))))
}

// ID is the id of a generation, empty if there is none.
func (g *generation) ID() string {
	if g == nil {
		return ""
	}
	return g.id
}
