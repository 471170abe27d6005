package delegates

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/kube-openapi/pkg/handler3"

	"github.com/catena-dev/catena/sdk"
)

// documented is a stage with OpenAPI v3 documents that a test can change.
type documented struct {
	name string

	mu        sync.Mutex
	documents []string
	down      bool
}

func (d *documented) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := strings.TrimPrefix(r.URL.Path, "/openapi/v3/")
	switch {
	case d.down:
		http.Error(w, "down", http.StatusServiceUnavailable)
	case r.URL.Path == "/openapi/v3":
		paths := Index{}
		for _, name := range d.documents {
			paths[name] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: "/openapi/v3/" + name + "?hash=" + d.name}
		}
		_ = json.NewEncoder(w).Encode(handler3.OpenAPIV3Discovery{Paths: paths})
	case slices.Contains(d.documents, name):
		fmt.Fprintf(w, "%s of %s, %s", name, d.name, r.URL.RawQuery)
	default:
		http.NotFound(w, r)
	}
}

func (d *documented) set(down bool, documents ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.down, d.documents = down, documents
}

func TestOpenAPIv3(t *testing.T) {
	t.Parallel()
	a, b := &documented{name: "a"}, &documented{name: "b"}
	merged := NewOpenAPIv3([]sdk.Delegate{{Name: "a", Handler: a}, {Name: "b", Handler: b}})
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		merged.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		body, _ := io.ReadAll(w.Body)
		return w.Code, string(body)
	}
	a.set(false, "api/v1", "both")
	b.set(false, "apis/x/v1", "both")
	// Without having been asked for the index, it finds a document.
	if code, body := get("/openapi/v3/apis/x/v1?hash=1"); code != http.StatusOK || body != "apis/x/v1 of b, hash=1" {
		t.Errorf("a document is %d %s", code, body)
	}
	if _, body := get("/openapi/v3/both"); body != "both of a, " {
		t.Errorf("the document of two stages is %s", body)
	}
	const all = `{"paths":{"api/v1":{"serverRelativeURL":"/openapi/v3/api/v1?hash=a"},"apis/x/v1":{"serverRelativeURL":"/openapi/v3/apis/x/v1?hash=b"},"both":{"serverRelativeURL":"/openapi/v3/both?hash=a"}}}`
	for _, step := range []struct {
		what string
		down bool
		want string
	}{{"the index", false, all}, {"the index while a stage is down", true, all}} {
		b.set(step.down, "apis/x/v1", "both")
		if code, body := get("/openapi/v3"); code != http.StatusOK || body != step.want {
			t.Errorf("%s is %d %s", step.what, code, body)
		}
	}
	if code, _ := get("/openapi/v3/apis/x/v1"); code != http.StatusServiceUnavailable {
		t.Errorf("the document of a stage that is down has status %d", code)
	}
	b.set(false, "apis/y/v1")
	if code, body := get("/openapi/v3/apis/y/v1"); code != http.StatusOK {
		t.Errorf("a new document is %d %s", code, body)
	}
	if code, _ := get("/openapi/v3/apis/x/v1"); code != http.StatusNotFound {
		t.Errorf("a document that is gone has status %d", code)
	}
}

func TestGroups(t *testing.T) {
	t.Parallel()
	s := &stage{}
	s.set("1", 0, group("custom", "v1beta1", "v1"), group("apps", "v1"))
	manager := aggregated.NewResourceManager("apis")
	d := NewDiscovery(sdk.Delegate{Name: "s", Handler: s}, manager, map[metav1.GroupVersion]Priority{{Group: "apps", Version: "v1"}: {Group: 17800, Version: 15}})
	d.Sync(t.Context())
	groups, err := Groups(t.Context(), manager)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, g := range groups {
		got = append(got, g.PreferredVersion.GroupVersion)
		for _, v := range g.Versions {
			got = append(got, v.Version)
		}
	}
	if want := []string{"apps/v1", "v1", "custom/v1", "v1", "v1beta1"}; !slices.Equal(got, want) {
		t.Errorf("the list has %q, want %q", got, want)
	}
	s.set("", http.StatusServiceUnavailable)
	if _, err := Groups(t.Context(), s); err == nil {
		t.Error("a list without discovery")
	}
}
