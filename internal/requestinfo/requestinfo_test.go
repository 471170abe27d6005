package requestinfo

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/catena-dev/catena/sdk"
)

// read returns what a stage gets of a line.
func read(t *testing.T, line string) (got sdk.RequestInfo) {
	t.Helper()
	text, ok := strings.CutPrefix(line, "X-Catena-Request-Info: ")
	if text, found := strings.CutSuffix(text, "\r\n"); !ok || !found || json.Unmarshal([]byte(text), &got) != nil ||
		strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		t.Fatalf("no line of a header: %q", line)
	}
	return got
}

func TestAppend(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]sdk.RequestInfo{
		"/version":      {Verb: "get"},
		"/api":          {Verb: "get"},
		"/apis/apps/v1": {Verb: "get"},
		"/apis/apps/v1/namespaces/a/deployments/web/status": {
			Verb: "get", APIGroup: "apps", APIVersion: "v1", Namespace: "a", Resource: "deployments", Subresource: "status", Name: "web"},
		"/api/v1/namespaces/a/secrets?watch=1": {Verb: "watch", APIVersion: "v1", Namespace: "a", Resource: "secrets"},
		"/api/v1/watch/secrets":                {Verb: "watch", APIVersion: "v1", Resource: "secrets"},
		"/api/v1/secrets":                      {Verb: "list", APIVersion: "v1", Resource: "secrets"},
		"/api/v1/pods/%C3%A9%0A%22":            {Verb: "get", APIVersion: "v1", Resource: "pods", Name: "é\n\""},
		"/api/v1/pods/" + strings.Repeat("x", 4000): {
			Verb: "get", APIVersion: "v1", Resource: "pods", Name: strings.Repeat("x", 4000)},
	} {
		info, err := Factory().NewRequestInfo(httptest.NewRequest(http.MethodGet, target, nil))
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t, string(Append(nil, info))); got != want {
			t.Errorf("%s: %+v", target, got)
		}
	}
	long := &request.RequestInfo{Verb: "get", IsResourceRequest: true, Name: strings.Repeat("x", 4<<10)}
	if got := Append([]byte("before"), long); string(got) != "before" {
		t.Errorf("of long names there are %d bytes", len(got))
	}
}

// Whatever a path has in it, a stage gets what the host has read.
func FuzzAppend(f *testing.F) {
	f.Add("GET", "/api/v1/namespaces/a/pods/b/log", "watch=true")
	f.Add("DELETE", "/apis/\xff/v1/\u2028", "")
	f.Fuzz(func(t *testing.T, method, path, query string) {
		info, err := Factory().NewRequestInfo(&http.Request{Method: method, URL: &url.URL{Path: path, RawQuery: query}})
		if err != nil || len(path)+len(method) > longest/2 {
			return
		}
		want := sdk.RequestInfo{Verb: info.Verb}
		if info.IsResourceRequest {
			want = sdk.RequestInfo{
				Verb: info.Verb, APIGroup: info.APIGroup, APIVersion: info.APIVersion, Namespace: info.Namespace,
				Resource: info.Resource, Subresource: info.Subresource, Name: info.Name,
			}
		}
		for _, s := range []*string{&want.Verb, &want.APIGroup, &want.APIVersion, &want.Namespace, &want.Resource, &want.Subresource, &want.Name} {
			*s = string([]rune(*s)) // as JSON has what is not UTF-8
		}
		if got := read(t, string(Append(nil, info))); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}
