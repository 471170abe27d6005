package front

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/catena-dev/catena/host/internal/bounds"
)

// Client is a program that has used a resource.
type Client struct {
	// UserAgent is the first product of it, such as kubectl/v1.37.0.
	UserAgent string
	Requests  int64
}

// clients counts who has used which resource since the start, by user agent.
type clients struct {
	mu    sync.RWMutex
	all   map[usedResource]map[string]*atomic.Int64
	total int
}

type usedResource struct{ group, version, resource string }

type followerKey struct{}

// WithFollower returns a context whose requests are those of a stage that follows what the server serves, and do not
// count as use of it.
func WithFollower(ctx context.Context) context.Context {
	return context.WithValue(ctx, followerKey{}, true)
}

// seen counts a request. Those of Kubernetes' own servers, and of stages that follow what is served, do not count.
func (c *clients) seen(r *http.Request) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok || !info.IsResourceRequest {
		return
	}
	if u, ok := request.UserFrom(r.Context()); ok && u.GetName() == user.APIServerUser {
		return
	}
	if r.Context().Value(followerKey{}) != nil {
		return
	}
	agent, _, _ := strings.Cut(r.UserAgent(), " ")
	agent = agent[:min(len(agent), bounds.UserAgent)]
	resource := info.Resource
	if info.Subresource != "" {
		resource += "/" + info.Subresource
	}
	key := usedResource{info.APIGroup, info.APIVersion, resource}
	c.mu.RLock()
	n := c.all[key][agent]
	c.mu.RUnlock()
	if n == nil {
		n = c.add(key, agent)
	}
	if n != nil {
		n.Add(1)
	}
}

// add makes the counter of a client; it is nil if there are too many.
func (c *clients) add(key usedResource, agent string) *atomic.Int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.all[key][agent]; n != nil {
		return n
	}
	if c.total == bounds.Clients || len(c.all[key]) == bounds.ResourceClients {
		return nil
	}
	c.total++
	if c.all == nil {
		c.all = map[usedResource]map[string]*atomic.Int64{}
	}
	if c.all[key] == nil {
		c.all[key] = map[string]*atomic.Int64{}
	}
	n := &atomic.Int64{}
	c.all[key][strings.Clone(agent)] = n
	return n
}

// Clients returns who has used a resource since the start, those with most requests first. A subresource is written with a
// slash, as in pods/log.
func (f *Frontend) Clients(group, version, resource string) []Client {
	c := &f.clients
	c.mu.RLock()
	defer c.mu.RUnlock()
	var all []Client
	for agent, n := range c.all[usedResource{group, version, resource}] {
		all = append(all, Client{UserAgent: agent, Requests: n.Load()})
	}
	slices.SortFunc(all, func(a, b Client) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.UserAgent, b.UserAgent))
	})
	return all
}
