package front

import (
	"context"
	"fmt"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/catena-dev/catena/host/internal/bounds"
)

// used makes a request of a user to a resource.
func used(c *clients, agent, name, resource, subresource string) {
	usedIn(context.Background(), c, agent, name, resource, subresource)
}

func usedIn(ctx context.Context, c *clients, agent, name, resource, subresource string) {
	r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
	r.Header.Set("User-Agent", agent)
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{
		IsResourceRequest: resource != "", APIVersion: "v1", Resource: resource, Subresource: subresource,
	})
	c.seen(r.WithContext(request.WithUser(ctx, &user.DefaultInfo{Name: name})))
}

// Who uses a resource is counted by the first product of the user agent; servers themselves, and what follows them, are
// not.
func TestClients(t *testing.T) {
	t.Parallel()
	f := &Frontend{}
	for range 2 {
		used(&f.clients, "kubectl/v1.37.0 (linux/amd64) kubernetes/f54c212", "alice", "pods", "")
	}
	used(&f.clients, "manager/v1", "bob", "pods", "")
	used(&f.clients, "manager/v1", "bob", "pods", "log")
	used(&f.clients, "kube-apiserver/v1.37.0", user.APIServerUser, "pods", "")
	usedIn(WithFollower(t.Context()), &f.clients, "controllers/v1", "system:kube-controller-manager", "pods", "")
	used(&f.clients, "curl", "bob", "", "")
	if got := fmt.Sprint(f.Clients("", "v1", "pods"), f.Clients("", "v1", "pods/log"), f.Clients("", "v1", "secrets")); got != "[{kubectl/v1.37.0 2} {manager/v1 1}] [{manager/v1 1}] []" {
		t.Error(got)
	}
	for i := range 3 * bounds.ResourceClients {
		used(&f.clients, fmt.Sprint("c", i), "bob", "nodes", "")
	}
	if n := len(f.Clients("", "v1", "nodes")); n != bounds.ResourceClients {
		t.Errorf("%d clients", n)
	}
	for i := range bounds.Clients { // resources are what clients say, too
		used(&f.clients, "curl", "bob", fmt.Sprint("r", i), "")
	}
	if n := len(f.clients.all); n != bounds.Clients-bounds.ResourceClients {
		t.Errorf("%d resources", n)
	}
}

func BenchmarkClients(b *testing.B) {
	var c clients
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("User-Agent", "kubectl/v1.37.0 (linux/amd64) kubernetes/f54c212")
	r = r.WithContext(request.WithRequestInfo(r.Context(), &request.RequestInfo{IsResourceRequest: true, APIVersion: "v1", Resource: "pods"}))
	b.ReportAllocs()
	for b.Loop() {
		c.seen(r)
	}
}
