package kube

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/emicklei/go-restful/v3"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/handler3"

	"github.com/catena-dev/catena/sdk/stagetest"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// prepareCore returns a core that nobody asks for anything: there is no aggregator, and the server's own requests get nowhere.
func prepareCore(t *testing.T) *stagetest.Stage {
	t.Helper()
	core := stagetest.Launch(t, coreStage, stagetest.Options{Flags: flags(t), User: admin, Next: http.NotFoundHandler(), API: http.NotFoundHandler()})
	if err := errors.Join(core.Configure(), core.PrepareRun()); err != nil {
		t.Fatal(err)
	}
	return core
}

// get returns the header and the body of a document of core.
func get(t *testing.T, url, accept string) (http.Header, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	r.Header.Set(stagev1.HeaderDelegate, "core")    // not the merged one
	resp, err := http.DefaultTransport.RoundTrip(r) // which follows no redirect
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, resp.Status, err)
	}
	return resp.Header, body
}

// TestOpenAPIv3IsMadeEarly shows that core makes the documents before anybody asks for their index, which has the second in
// which it was made: after a second or more that passed in between, an index that is made now has another.
func TestOpenAPIv3IsMadeEarly(t *testing.T) {
	t.Parallel()
	for pause := 2 * time.Second; pause < time.Minute; pause *= 2 { // on a busy machine, making them takes longer
		core := prepareCore(t)
		time.Sleep(pause)
		asked := time.Now().Truncate(time.Second)
		header, _ := get(t, core.URL+openAPIIndex, "application/json")
		made, err := http.ParseTime(header.Get("Last-Modified"))
		if err != nil {
			t.Fatal(err)
		}
		if made.Before(asked) {
			return
		}
	}
	t.Error("the documents were made when their index was asked for")
}

// Each document is the one whose hash is in the index, although it is made anew for those who ask.
func TestOpenAPIv3Documents(t *testing.T) {
	t.Parallel()
	core := prepareCore(t)
	_, text := get(t, core.URL+openAPIIndex, "application/json")
	var index handler3.OpenAPIV3Discovery
	if err := json.Unmarshal(text, &index); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"api/v1", "apis/apps/v1", "apis/authentication.k8s.io/v1", "version"} {
		if _, ok := index.Paths[name]; !ok {
			t.Errorf("the index has no %s", name)
		}
	}
	for name, entry := range index.Paths {
		for _, accept := range []string{"application/json", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"} {
			header, body := get(t, core.URL+entry.ServerRelativeURL, accept)
			u, err := url.Parse(entry.ServerRelativeURL)
			if err != nil {
				t.Fatal(err)
			}
			if etag, want := header.Get("Etag"), `"`+u.Query().Get("hash")+`"`; etag != want {
				t.Errorf("%s: the hash of the document is %s, in the index %s", name, etag, want)
			}
			if len(body) == 0 || header.Get("Content-Type") != accept && accept == "application/json" {
				t.Errorf("%s: %d bytes of %s", name, len(body), header.Get("Content-Type"))
			}
		}
	}
	resp, err := http.Get(core.URL + openAPIIndex + "/apis/none.example.com/v1")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("a document that there is not: %s", resp.Status)
	}
}

// A document is kept for some time after the last request for it.
func TestOpenAPIv3DocumentsAreDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const path = "/apis/a.example.com/v1"
		none := func(common.ReferenceCallback) map[string]common.OpenAPIDefinition { return nil }
		o := &openAPIv3{
			config:    genericapiserver.DefaultOpenAPIV3Config(none, openapinamer.NewDefinitionNamer()),
			services:  func() []*restful.WebService { return []*restful.WebService{new(restful.WebService).Path(path)} },
			documents: map[string]*keptDocument{},
		}
		if o.document(path) == nil || o.document("/apis/b.example.com/v1") != nil {
			t.Error("want the document of the one path, and none of another")
		}
		kept := func(after string, want bool) {
			t.Helper()
			synctest.Wait()
			o.mu.Lock()
			defer o.mu.Unlock()
			if o.documents[path] != nil != want {
				t.Errorf("%s: kept is not %v", after, want)
			}
		}
		time.Sleep(documentKept * 3 / 4)
		o.document(path)
		time.Sleep(documentKept * 3 / 4)
		kept("asked for a while ago", true)
		time.Sleep(documentKept / 2)
		kept("not asked for since", false)
	})
}
