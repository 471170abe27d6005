package sdk

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// Claim claims these paths, each by itself. A segment * of a path stands for any one that is not empty.
func (e *Env) Claim(paths ...string) { e.addClaims(Exact, paths) }

// ClaimPrefix claims these paths and everything below them. A stage that wants to see
// every request claims /. A segment * of a path stands for any one that is not empty:
// /api/v1/namespaces/*/secrets.
func (e *Env) ClaimPrefix(paths ...string) { e.addClaims(Prefix, paths) }

func (e *Env) addClaims(claim func(string) Claim, paths []string) {
	var claims []Claim
	for _, p := range paths {
		claims = append(claims, claim(p))
	}
	if e.validClaims(claims) {
		e.reports.update(func(r *reportState) { r.setClaims(append(slices.Clone(r.claims), claims...)) })
	}
}

// SetClaims replaces all claims. It can be called at any time; the host applies them
// shortly after.
func (e *Env) SetClaims(claims ...Claim) {
	if e.validClaims(claims) {
		e.reports.update(func(r *reportState) { r.setClaims(slices.Clone(claims)) })
	}
}

func (e *Env) validClaims(claims []Claim) bool {
	for _, c := range claims {
		if err := c.Validate(); err != nil {
			e.mu.Lock()
			defer e.mu.Unlock()
			if e.sealed {
				e.Log.Error("claims were not changed", "error", err)
			} else {
				e.mistakes = append(e.mistakes, err)
			}
			return false
		}
	}
	return true
}

// ListPaths sets the paths that the stage adds to the index at /. It replaces earlier
// ones, and can be called at any time. Those count that the stage claims, and those above them, such as /apis.
func (e *Env) ListPaths(paths ...string) {
	e.reports.update(func(r *reportState) { r.setPaths(slices.Clone(paths)) })
}

// ResourceSize is how many objects of a resource are stored.
type ResourceSize struct {
	// Resource is RESOURCE.GROUP, or RESOURCE for the core group.
	Resource string
	Count    int64
	// ObjectBytes is the estimated size of one object, 0 if it is not known.
	ObjectBytes int64
}

// ReportSizes reports the sizes of stored resources to the host, which estimates the cost of
// LIST requests from them. Resources that are not among them keep their last size.
func (e *Env) ReportSizes(sizes []ResourceSize) {
	e.reports.update(func(r *reportState) { r.setSizes(sizes) })
}

// MuxComplete registers a signal: until the channel is closed, the stage may not have all of its paths, and the host,
// if it requires the stage, responds with 503 instead of 404 at the end of the chain. In a process that takes the place
// of another, requests for discovery and OpenAPI documents of the stage wait for it.
func (e *Env) MuxComplete(name string, complete <-chan struct{}) {
	e.register("MuxComplete "+name, func() error {
		if !e.reports.expect(name) {
			return fmt.Errorf("registered twice")
		}
		go func() {
			select {
			case <-complete:
				e.reports.update(func(r *reportState) { r.signaled = append(r.signaled, name) })
			case <-e.ctx.Done():
			}
		}()
		return nil
	})
}

// reports is what the stage has reported. Its changes can be followed with since.
type reports struct {
	mu      sync.Mutex
	state   reportState
	changed chan struct{} // closed at the next change
}

// reportState is guarded by the lock of reports. Slices in it are never changed in place.
type reportState struct {
	claims        []Claim
	paths         []string
	pathsRevision int // of claims and paths
	expected      []string
	signaled      []string
	sizes         map[string]revisedSize
	sizesRevision int
}

type revisedSize struct {
	ResourceSize
	revision int
}

func newReports() *reports {
	return &reports{
		changed: make(chan struct{}),
		state:   reportState{sizes: map[string]revisedSize{}, pathsRevision: 1},
	}
}

func (r *reportState) setClaims(claims []Claim) {
	r.claims = claims
	r.pathsRevision++
}

func (r *reportState) setPaths(paths []string) {
	if slices.Equal(r.paths, paths) {
		return
	}
	r.paths = paths
	r.pathsRevision++
}

func (r *reportState) setSizes(sizes []ResourceSize) {
	r.sizesRevision++
	for _, s := range sizes {
		r.sizes[s.Resource] = revisedSize{s, r.sizesRevision}
	}
}

func (r *reports) update(f func(*reportState)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.state)
	close(r.changed)
	r.changed = make(chan struct{})
}

// expect adds a signal. It returns false if there is one with that name.
func (r *reports) expect(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.state.expected, name) {
		return false
	}
	r.state.expected = append(r.state.expected, name)
	return true
}

// paths returns what Configure and PrepareRun report.
func (r *reports) paths() (listed []string, claims []*stagev1.Claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.paths, stagev1.EncodeClaims(r.state.claims)
}

func (r *reports) signals() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.state.expected)
}

// cursor is how far a caller has followed the reports. The zero cursor is at the beginning.
type cursor struct{ paths, signals, sizes int }

// since returns what has changed since c, nil if nothing has, and a channel that is
// closed at the next change. Changes between two calls are one.
func (r *reports) since(c *cursor) (*stagev1.Event, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, e, any := &r.state, &stagev1.Event{}, false
	if c.paths < s.pathsRevision {
		e.ClaimsChanged = &stagev1.ClaimsChanged{Claims: stagev1.EncodeClaims(s.claims), ListedPaths: s.paths}
		c.paths, any = s.pathsRevision, true
	}
	if c.signals < len(s.signaled) {
		e.Signaled = slices.Clone(s.signaled[c.signals:])
		c.signals, any = len(s.signaled), true
	}
	if c.sizes < s.sizesRevision {
		e.ResourceSizes = s.sizesSince(c.sizes)
		c.sizes, any = s.sizesRevision, true
	}
	if !any {
		e = nil
	}
	return e, r.changed
}

func (r *reportState) sizesSince(revision int) []*stagev1.ResourceSize {
	var wire []*stagev1.ResourceSize
	for _, name := range slices.Sorted(maps.Keys(r.sizes)) {
		if s := r.sizes[name]; s.revision > revision {
			wire = append(wire, &stagev1.ResourceSize{Resource: s.Resource, Count: s.Count, ObjectBytes: s.ObjectBytes})
		}
	}
	return wire
}
