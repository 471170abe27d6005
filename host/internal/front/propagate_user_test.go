package front

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// FuzzAppendUser compares with encoding/json, and checks that the result fits into
// a header.
func FuzzAppendUser(f *testing.F) {
	f.Add("jane", "1", "ops", "example.com/key", "value")
	f.Add("zoë\r\nX-Catena-Timeout: 1", "\x00\x7f", "\"\\/", "\u2028", "\U0001f600")
	f.Add("\xff", "", "", "", "\ud7ff")
	f.Fuzz(func(t *testing.T, name, uid, group, key, value string) {
		u := &user.DefaultInfo{Name: name, UID: uid, Groups: []string{group, name}, Extra: map[string][]string{key: {value, uid}}}
		encoded := appendUser(nil, u)
		for _, c := range encoded {
			if c < ' ' || c > '~' {
				t.Fatalf("byte %#x in %q", c, encoded)
			}
		}
		type fields struct {
			Name   string              `json:"name"`
			UID    string              `json:"uid,omitempty"`
			Groups []string            `json:"groups"`
			Extra  map[string][]string `json:"extra"`
		}
		var got, want fields
		if err := json.Unmarshal(encoded, &got); err != nil {
			t.Fatalf("%s: %v", encoded, err)
		}
		reference, err := json.Marshal(fields{name, uid, u.Groups, u.Extra})
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(reference, &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

// filteredRequest returns a request as the filters leave it.
func filteredRequest(tb testing.TB) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
	ctx := request.WithReceivedTimestamp(r.Context(), time.Now())
	ctx = request.WithUser(ctx, &user.DefaultInfo{Name: "jane", UID: "1", Groups: []string{"ops", "system:authenticated"}})
	ctx = audit.WithAuditContext(ctx)
	info := &request.RequestInfo{Verb: "list", IsResourceRequest: true, APIVersion: "v1", Resource: "pods"}
	ctx = request.WithRequestInfo(ctx, info)
	audit.WithAuditID(ctx, "7f1a3c9e-5ad1-4e3a-9f1c-0d3b6a0e8f11")
	return r.WithContext(ctx)
}

func TestAppendRequestHeadersIsCheap(t *testing.T) {
	c, r := &Propagator{}, filteredRequest(t)
	buf := make([]byte, 0, 1024)
	if !strings.Contains(string(c.AppendRequestHeaders(buf, r)), `X-Catena-User: {"name":"jane","uid":"1","groups":["ops","system:authenticated"]}`+"\r\n") {
		t.Error("no user")
	}
	const info = `X-Catena-Request-Info: {"verb":"list","apiVersion":"v1","resource":"pods"}` + "\r\n"
	if !strings.Contains(string(c.AppendRequestHeaders(buf, r)), info) {
		t.Error("no request info")
	}
	if n := testing.AllocsPerRun(100, func() { c.AppendRequestHeaders(buf, r) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}

func TestAppendTimeInQueues(t *testing.T) {
	t.Parallel()
	ctx := request.WithLatencyTrackers(t.Context())
	request.TrackAPFQueueWaitLatency(ctx, 7*time.Millisecond)
	r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
	const want = "X-Catena-Request-Info: {\"verb\":\"get\"}\r\n" +
		"X-Catena-Client: 192.0.2.1:1234\r\nX-Catena-Latency: apf-queue-wait=7000000\r\n"
	if got := string((&Propagator{}).AppendRequestHeaders(nil, r)); got != want {
		t.Errorf("headers are %q, want %q", got, want)
	}
}

func BenchmarkAppendRequestHeaders(b *testing.B) {
	c, r := &Propagator{}, filteredRequest(b)
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		c.AppendRequestHeaders(buf, r)
	}
}
