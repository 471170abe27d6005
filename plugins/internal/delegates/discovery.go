package delegates

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/util/responsewriter"

	"github.com/catena-dev/catena/sdk"
)

// accept asks for the aggregated discovery document.
const accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=" + documentKind

const documentKind = "APIGroupDiscoveryList"

const (
	// burstInterval and burst apply after Poke: whatever was changed shows in the
	// stage's document a moment later.
	burstInterval = 25 * time.Millisecond
	burst         = 2 * time.Second
	// requestTimeout bounds one request for a document.
	requestTimeout = 5 * time.Second
	// gateTimeout bounds the time that a request waits at the Gate.
	gateTimeout = time.Minute
)

// Priority is the place of a group version in discovery.
type Priority struct{ Group, Version int }

// Discovery keeps the group versions of one delegate in the aggregator's
// discovery manager.
type Discovery struct {
	Delegate sdk.Delegate
	Manager  aggregated.ResourceManager
	// Place is that of the delegate in the chain: of a group version that several have, the first one's counts, and before it that of those
	// which speak for the whole API.
	Place int
	// Builtin has the group versions that the delegate always has, with their
	// priorities; all others are custom resources.
	Builtin map[metav1.GroupVersion]Priority
	// Log is called when fetching starts or ceases to fail, and when it fails otherwise
	// than before: errors.Is(err, ErrMalformed) distinguishes the two.
	Log func(err error)

	// counts reports whether the delegate may have a group version; nil if it may have all.
	counts    func(metav1.GroupVersion) bool
	etag      string
	known     map[metav1.GroupVersion]apidiscoveryv2.APIVersionDiscovery
	failed    bool
	malformed bool // and so failed
	pace      pace
	poked     chan struct{}
	synced    chan struct{}
	// waiting is closed by Wait.
	waiting chan struct{}
}

// afterWhole is more than there are delegates.
const afterWhole = 1 << 16

// customPriority is the priority of custom resources, as Kubernetes' discovery
// controller for them has it.
var customPriority = Priority{Group: 1000, Version: 100}

// NewDiscovery returns a Discovery that is to be Run.
func NewDiscovery(delegate sdk.Delegate, manager aggregated.ResourceManager, builtin map[metav1.GroupVersion]Priority) *Discovery {
	d := &Discovery{
		Delegate: delegate,
		Manager:  manager,
		Builtin:  builtin,
		Log:      func(error) {},
		poked:    make(chan struct{}, 1),
		synced:   make(chan struct{}),
		waiting:  make(chan struct{}),
	}
	if b, ok := delegate.Handler.(*bounded); ok && !b.whole {
		d.counts = b.counts
	}
	return d
}

// Synced is closed once the delegate's document has been fetched.
func (d *Discovery) Synced() <-chan struct{} { return d.synced }

// Gate returns a handler that passes requests on to the delegate once its document has
// been fetched. Before that its response is 503: the aggregator does not ask again for
// OpenAPI documents that were not found. After Wait requests wait instead, since the
// aggregator asks again only a minute after a failure, but not those to an optional delegate.
func (d *Discovery) Gate() http.Handler {
	index := &index{next: d.Delegate.Handler, pace: &d.pace}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !d.await(r.Context()):
			http.Error(w, fmt.Sprintf("stage %q has not responded yet", d.Delegate.Name), http.StatusServiceUnavailable)
		case r.URL.Path == openAPIv3:
			index.ServeHTTP(w, r)
		default:
			d.Delegate.Handler.ServeHTTP(w, r)
		}
	})
}

// Wait makes requests at the Gate wait for the delegate's document. It is called once,
// when the server is prepared: PrepareRun makes such requests before Run has begun.
func (d *Discovery) Wait() { close(d.waiting) }

// await reports whether the delegate's document has been fetched, in time.
func (d *Discovery) await(ctx context.Context) bool {
	select {
	case <-d.synced:
		return true
	default:
	}
	select {
	case <-d.waiting:
	default:
		return false
	}
	if d.Delegate.Optional {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, gateTimeout)
	defer cancel()
	select {
	case <-d.synced:
		return true
	case <-ctx.Done():
		return false
	}
}

// Poke announces that the delegate's documents are about to change.
func (d *Discovery) Poke() {
	d.pace.change()
	select {
	case d.poked <- struct{}{}:
	default:
	}
}

// Run keeps the manager up to date until ctx ends.
func (d *Discovery) Run(ctx context.Context) {
	var quick time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.poked:
			quick = time.Now().Add(burst)
		case <-timer.C:
		}
		d.Sync(ctx)
		if time.Now().Before(quick) {
			timer.Reset(burstInterval)
		} else {
			timer.Reset(d.pace.interval())
		}
	}
}

// ErrMalformed is why a document that the delegate has sent is of no use.
var ErrMalformed = errors.New("malformed document")

// Sync brings the manager up to date once. If the delegate does not respond, its
// last document is kept, marked as stale. If its response is malformed and there is no
// last document, its listed group versions are there, empty and stale: waiting for more
// would delay the other delegates. It must not be called while Run runs.
func (d *Discovery) Sync(ctx context.Context) {
	document, err := d.fetch(ctx)
	if ctx.Err() != nil {
		return
	}
	failed, malformed := err != nil, errors.Is(err, ErrMalformed)
	if failed || document != nil {
		d.pace.change()
	}
	if malformed {
		d.Assume()
	}
	if failed != d.failed || malformed != d.malformed {
		d.failed, d.malformed = failed, malformed
		d.Log(err)
		d.mark()
	}
	if failed && !malformed {
		return
	}
	if document != nil {
		d.apply(document)
	}
	select {
	case <-d.synced:
	default:
		close(d.synced)
	}
}

// Assume takes what the delegate lists for what it serves, empty and stale, if none of its documents has been
// fetched yet: clients must not take a group for gone. It must not be called while Sync or Run runs.
func (d *Discovery) Assume() {
	if d.known != nil {
		return
	}
	d.known = map[metav1.GroupVersion]apidiscoveryv2.APIVersionDiscovery{}
	for gv := range d.Builtin {
		version := apidiscoveryv2.APIVersionDiscovery{Version: gv.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessStale}
		d.known[gv] = version
		d.add(gv, version)
	}
}

// fetch returns the delegate's document, nil if it is the same as last time.
func (d *Discovery) fetch(ctx context.Context) (*apidiscoveryv2.APIGroupDiscoveryList, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, apis, nil)
	if err != nil {
		return nil, fmt.Errorf("discovery of stage %q: %w", d.Delegate.Name, err)
	}
	r.Header.Set("Accept", accept)
	if d.etag != "" {
		r.Header.Set("If-None-Match", d.etag)
	}
	w := responsewriter.NewInMemoryResponseWriter()
	d.Delegate.Handler.ServeHTTP(w, r)
	switch w.RespCode() {
	case http.StatusOK:
	case http.StatusNotModified:
		return nil, nil
	case http.StatusUnprocessableEntity:
		return nil, fmt.Errorf("discovery of stage %q: %w: %s", d.Delegate.Name, ErrMalformed, bytes.TrimSpace(w.Data()))
	default:
		return nil, fmt.Errorf("discovery of stage %q: status %d: %s", d.Delegate.Name, w.RespCode(), bytes.TrimSpace(w.Data()))
	}
	document := &apidiscoveryv2.APIGroupDiscoveryList{}
	if err := json.Unmarshal(w.Data(), document); err != nil {
		return nil, fmt.Errorf("discovery of stage %q: %w: %w", d.Delegate.Name, ErrMalformed, err)
	}
	if kind := document.Kind; kind != "" && kind != documentKind {
		return nil, fmt.Errorf("discovery of stage %q: %w: want an %s, got an %s", d.Delegate.Name, ErrMalformed, documentKind, kind)
	}
	d.etag = w.Header().Get("Etag")
	return document, nil
}

func (d *Discovery) apply(document *apidiscoveryv2.APIGroupDiscoveryList) {
	gone := d.known
	d.known = map[metav1.GroupVersion]apidiscoveryv2.APIVersionDiscovery{}
	for _, group := range document.Items {
		for _, version := range group.Versions {
			gv := metav1.GroupVersion{Group: group.Name, Version: version.Version}
			if d.counts != nil && (!d.counts(gv) || len(d.known) >= maxGroupVersions) {
				continue
			}
			delete(gone, gv)
			d.known[gv] = version
			d.add(gv, version)
		}
	}
	for gv := range gone {
		d.source().RemoveGroupVersion(gv)
	}
}

func (d *Discovery) add(gv metav1.GroupVersion, version apidiscoveryv2.APIVersionDiscovery) {
	priority, ok := d.Builtin[gv]
	if !ok {
		priority = customPriority
	}
	d.source().AddGroupVersion(gv.Group, version)
	d.source().SetGroupVersionPriority(gv, priority.Group, priority.Version)
}

// mark marks the known group versions as current or stale.
func (d *Discovery) mark() {
	for gv, version := range d.known {
		if d.failed {
			version.Freshness = apidiscoveryv2.DiscoveryFreshnessStale
		}
		d.source().AddGroupVersion(gv.Group, version)
	}
}

// source is the delegate's own: no other of a group version that it has too is lost when it goes. The first ones are those of the server
// itself.
func (d *Discovery) source() aggregated.ResourceManager {
	place := d.Place
	if d.counts != nil {
		place += afterWhole
	}
	return d.Manager.WithSource(aggregated.BuiltinSource + 1 + aggregated.Source(place))
}
