package shadow

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/catena-dev/catena/host/internal/chain"
)

// Request is a request of a client, as far as it is asked again.
type Request struct {
	Method string
	// URL has the path and the query.
	URL url.URL
	// Header has what of the client's headers changes the response; see Headers.
	Header http.Header
	// Body is that of a write.
	Body []byte
	// Resource is what the request is about; it is zero if that is a document, such as discovery.
	Resource Resource
	// As returns a context with the identity of the client.
	As func(context.Context) context.Context
}

// Resource is a resource of the API, with the verb of the request, as Kubernetes' servers see it.
type Resource struct {
	Verb, Group, Version, Name, Subresource, Namespace string
}

// String returns the resource as RESOURCE.GROUP/VERSION, or RESOURCE.VERSION in the core group.
func (r Resource) String() string {
	name, version := r.Name, r.Version
	if r.Subresource != "" {
		name += "/" + r.Subresource
	}
	if r.Group != "" {
		version = r.Group + "/" + version
	}
	return name + "." + version
}

// readable are subresources whose reads have no effect and end by themselves. Others, such as proxy and exec, may do anything.
var readable = []string{"", "status", "scale", "ephemeralcontainers", "resize"}

// Comparable reports whether a read is one that can be asked again: of an object, of a list, or of a document. Watches and
// what is passed on to other servers are not.
func Comparable(method string, u *url.URL, r Resource) bool {
	if method != http.MethodGet && method != http.MethodHead {
		return false
	}
	if watch := u.Query()["watch"]; len(watch) > 0 && !slices.Equal(watch, []string{"false"}) {
		return false
	}
	if r == (Resource{}) {
		return chain.IsDiscovery(u.Path)
	}
	return (r.Verb == "get" || r.Verb == "list") && slices.Contains(readable, r.Subresource)
}

// dryRunnable are the verbs of writes that can be a dry run, and dryRunSubresources what they can be of. A write of a
// subresource such as binding, eviction or token acts on more than its object.
var (
	dryRunnable        = []string{"create", "update", "patch"}
	dryRunSubresources = []string{"", "status", "scale"}
)

// DryRunnable reports whether a write can be asked again as a dry run. Reviews are not stored, and may call others.
func DryRunnable(method string, r Resource) bool {
	switch r.Group {
	case "authentication.k8s.io", "authorization.k8s.io":
		return false
	}
	return (method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch) && r.Name != "" &&
		slices.Contains(dryRunnable, r.Verb) && slices.Contains(dryRunSubresources, r.Subresource)
}

// check returns an error if the request could have an effect.
func (q Request) check() error {
	if Comparable(q.Method, &q.URL, q.Resource) {
		return nil
	}
	if DryRunnable(q.Method, q.Resource) && slices.Equal(q.URL.Query()["dryRun"], []string{"All"}) {
		return nil
	}
	return fmt.Errorf("%s %s could have an effect: a shadow does not get it", q.Method, q.URL.Path)
}

func (q Request) isWrite() bool { return q.Method != http.MethodGet && q.Method != http.MethodHead }

// Headers returns what is asked again of a client's headers. Responses are asked for as JSON.
func Headers(client http.Header) http.Header {
	h := http.Header{"Accept": {accept(client.Values("Accept"))}}
	for _, key := range []string{"Content-Type", "User-Agent"} {
		if values := client[key]; len(values) > 0 {
			h[key] = slices.Clone(values)
		}
	}
	return h
}

// accept returns the first media type of a client's that makes the response another object, in JSON.
func accept(values []string) string {
	for part := range strings.SplitSeq(strings.Join(values, ","), ",") {
		var as []string
		for parameter := range strings.SplitSeq(part, ";") {
			name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
			if slices.Contains([]string{"as", "g", "v"}, name) {
				as = append(as, name+"="+value)
			}
		}
		if len(as) == 3 {
			return strings.Join(append([]string{"application/json"}, as...), ";")
		}
	}
	return "application/json"
}

// with returns the request with parameters of its query replaced.
func (q Request) with(parameters map[string]string) Request {
	query := q.URL.Query()
	for name, value := range parameters {
		query.Set(name, value)
	}
	q.URL.RawQuery = query.Encode()
	return q
}

// pinnable reports whether a list can be read as of one version of the store. The rest of a list that was cut in pages is of
// the version of its first page.
func (q Request) pinnable() bool {
	return q.Resource.Verb == "list" && q.Method == http.MethodGet && !q.URL.Query().Has("continue")
}

// pinned returns the request of a list as of one version of the store.
func (q Request) pinned(version string) Request {
	return q.with(map[string]string{"resourceVersion": version, "resourceVersionMatch": "Exact"})
}

// dryRun returns a write as a dry run.
func (q Request) dryRun() Request { return q.with(map[string]string{"dryRun": "All"}) }

// decode keeps numbers as they are written.
func decode(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	return d.Decode(into)
}
