package shadow

import (
	"bytes"
	"net/http"
	"net/url"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Nothing that could have an effect is sent, whoever offers it.
func TestCheck(t *testing.T) {
	t.Parallel()
	pods := func(verb, sub string) Resource {
		return Resource{Verb: verb, Version: "v1", Name: "pods", Subresource: sub}
	}
	for _, c := range []struct {
		method, target string
		resource       Resource
		sent           bool
	}{
		{"GET", "/api/v1/pods", pods("list", ""), true},
		{"GET", "/api/v1/pods?watch=false", pods("list", ""), true},
		{"HEAD", "/api/v1/namespaces/a/pods/b", pods("get", ""), true},
		{"GET", "/api/v1/namespaces/a/pods/b/status", pods("get", "status"), true},
		{"GET", "/api/v1", Resource{}, true},
		{"GET", "/apis/apps/v1", Resource{}, true},
		{"GET", "/openapi/v3/api/v1", Resource{}, true},
		{"POST", "/api/v1/namespaces/a/pods?dryRun=All", pods("create", ""), true},
		{"PATCH", "/api/v1/namespaces/a/pods/b/status?dryRun=All", pods("patch", "status"), true},
		{"GET", "/api/v1/pods?watch=1", pods("list", ""), false},
		{"GET", "/api/v1/pods?watch=1", pods("watch", ""), false},
		{"GET", "/api/v1/namespaces/a/pods/b/exec", pods("get", "exec"), false},
		{"GET", "/api/v1/namespaces/a/pods/b/proxy", pods("get", "proxy"), false},
		{"GET", "/api/v1/namespaces/a/pods/b/log", pods("get", "log"), false},
		{"GET", "/api/v1/proxy/nodes/n", Resource{Verb: "proxy", Version: "v1", Name: "nodes"}, false},
		{"GET", "/logs/x", Resource{}, false},
		{"GET", "/anything", Resource{}, false},
		{"POST", "/api/v1", Resource{}, false},
		{"POST", "/api/v1/namespaces/a/pods", pods("create", ""), false},
		{"POST", "/api/v1/namespaces/a/pods?dryRun=", pods("create", ""), false},
		{"POST", "/api/v1/namespaces/a/pods?dryRun=All&dryRun=None", pods("create", ""), false},
		{"GET", "/api/v1/namespaces/a/pods?dryRun=All", pods("create", ""), false},
		{"POST", "/api/v1/namespaces/a/pods/b/binding?dryRun=All", pods("create", "binding"), false},
		{"POST", "/api/v1/namespaces/a/pods/b/eviction?dryRun=All", pods("create", "eviction"), false},
		{"POST", "/api/v1/namespaces/a/serviceaccounts/b/token?dryRun=All", Resource{Verb: "create", Version: "v1", Name: "serviceaccounts", Subresource: "token"}, false},
		{"DELETE", "/api/v1/namespaces/a/pods/b?dryRun=All", pods("delete", ""), false},
		{"DELETE", "/api/v1/namespaces/a/pods?dryRun=All", pods("deletecollection", ""), false},
		{"POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews?dryRun=All", Resource{Verb: "create", Group: "authorization.k8s.io", Version: "v1", Name: "subjectaccessreviews"}, false},
		{"CONNECT", "/api/v1/pods", pods("list", ""), false},
	} {
		u, err := url.Parse(c.target)
		if err != nil {
			t.Fatal(err)
		}
		if err := (Request{Method: c.method, URL: *u, Resource: c.resource}).check(); (err == nil) != c.sent {
			t.Errorf("%s %s: %v, want it to be sent: %t", c.method, c.target, err, c.sent)
		}
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]string{
		"":                                       "application/json",
		"application/vnd.kubernetes.protobuf":    "application/json",
		"application/json;q=0.9, */*":            "application/json",
		"application/json;as=Table;v=v1":         "application/json",
		"application/json;as=Table;v=v1;g=g.io":  "application/json;as=Table;v=v1;g=g.io",
		"text/html, x/y; g=a; v=b;as=c;profile=": "application/json;g=a;v=b;as=c",
	} {
		h := Headers(http.Header{"Accept": {accept}, "Authorization": {"Bearer x"}, "User-Agent": {"u"}})
		if h.Get("Accept") != want || h.Get("Authorization") != "" || h.Get("User-Agent") != "u" {
			t.Errorf("%q: %v", accept, h)
		}
	}
}

func TestPinned(t *testing.T) {
	t.Parallel()
	list := Request{Method: http.MethodGet, URL: url.URL{Path: "/api/v1/pods", RawQuery: "resourceVersion=0&limit=5"}, Resource: Resource{Verb: "list"}}
	if got := list.pinned("7").URL.RawQuery; !list.pinnable() || got != "limit=5&resourceVersion=7&resourceVersionMatch=Exact" {
		t.Error(got)
	}
	if list.URL.RawQuery != "resourceVersion=0&limit=5" {
		t.Error("the request itself has changed")
	}
	list.URL.RawQuery = "continue=x"
	if list.pinnable() {
		t.Error("a page is of the version of the first")
	}
}

// What has been written does not get in the way of its dry run, in both formats of controllers.
func TestAsNew(t *testing.T) {
	t.Parallel()
	object := corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "n", ResourceVersion: "7", Labels: map[string]string{"l": "v"}, Finalizers: []string{""}},
		Data:       map[string]string{"k": "v"},
	}
	raw, err := object.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	envelope, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Raw: raw}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	protobuf := append([]byte("k8s\x00"), envelope...)
	for _, c := range []struct{ verb, sub, name string }{{"create", "", "a-shadow"}, {"update", "", "a"}, {"update", "status", "a"}} {
		q := Request{Header: http.Header{"Content-Type": {"application/vnd.kubernetes.protobuf"}}, Body: protobuf, Resource: Resource{Verb: c.verb, Subresource: c.sub}}
		var u runtime.Unknown
		var got corev1.ConfigMap
		if err := u.Unmarshal(bytes.TrimPrefix(q.asNew().Body, []byte("k8s\x00"))); err != nil {
			t.Fatal(err)
		}
		if err := got.Unmarshal(u.Raw); err != nil {
			t.Fatal(err)
		}
		want := object
		want.Name, want.ResourceVersion = c.name, ""
		if u.Kind != "ConfigMap" || got.String() != want.String() {
			t.Errorf("%v: %v", c, got)
		}
		q.Header.Set("Content-Type", "application/json; charset=utf-8")
		q.Body = []byte(`{"metadata":{"name":"a","resourceVersion":"7"},"n":9007199254740993}`)
		if body := string(q.asNew().Body); body != `{"metadata":{"name":"`+c.name+`"},"n":9007199254740993}` {
			t.Error(body)
		}
	}
	for _, broken := range []string{"", "k8s\x00", "k8s\x00\xff", "k8s\x00\x12\x05\x0a", "{", "[]", `{"metadata":1}`} {
		for _, kind := range []string{"application/json", "application/vnd.kubernetes.protobuf", "text/plain"} {
			q := Request{Header: http.Header{"Content-Type": {kind}}, Body: []byte(broken), Resource: Resource{Verb: "create"}}
			if got := string(q.asNew().Body); got != broken {
				t.Errorf("%s: %q became %q", kind, broken, got)
			}
		}
	}
}

func FuzzRename(f *testing.F) {
	f.Add([]byte("k8s\x00\x12\x03\x0a\x01a"))
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = renameProtobuf(b, nameSuffix)
		_, _ = renameJSON(b, nameSuffix)
	})
}
