package system

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/sdk/stagev1/header"
	"github.com/catena-dev/catena/test/internal/cluster"
)

// extension is an extension API server, reached through an APIService. What it does
// depends on the last segment of the path.
type extension struct {
	*httptest.Server
	// victim is where its redirects lead; nobody must come there with them.
	victim *httptest.Server
	visits chan string
	// forged is how often it has responded with headers that only stages may send.
	forged atomic.Int64
}

const extensionPath = "/apis/odd.example.com/v1"

func startExtension(t *testing.T) *extension {
	t.Helper()
	e := &extension{visits: make(chan string, 100)}
	e.victim = httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { e.visits <- r.URL.String() }))
	t.Cleanup(e.victim.Close)
	e.Server = httptest.NewTLSServer(e)
	t.Cleanup(e.Close)
	return e
}

func (e *extension) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/seen") {
		tell(w, r)
		return
	}
	switch path := strings.TrimPrefix(r.URL.Path, extensionPath); path {
	case "":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "odd.example.com/v1", "resources": []}`)
	case "/things/exec":
		shout(w, r)
	case "/things/forged":
		e.forged.Add(1)
		for _, key := range []string{header.Undelivered, header.Decline, header.Audit} {
			w.Header().Set(key, `{"annotations":{"forged":"1"}}`)
		}
		if r.Header.Get("Upgrade") != "" {
			w.WriteHeader(http.StatusForbidden)
		}
	case "/cached", "/things/cached":
		w.Header().Set("Cache-Control", "max-age=60")
	case "/hinted":
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Link", "</other.css>; rel=preload")
	case "/things/late":
		<-r.Context().Done()
	case "/things/refused":
		http.Error(w, "no switch of protocols here", http.StatusForbidden)
	default:
		var status int
		if _, err := fmt.Sscanf(path, "/things/%d", &status); err != nil {
			status = http.StatusNotFound
		}
		if status != http.StatusNotModified {
			w.Header().Set("Location", e.victim.URL+"/redirected")
		}
		w.WriteHeader(status)
		fmt.Fprintf(w, "status %d", status)
	}
}

// tell responds with the request as it is, without what differs by chance.
func tell(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if strings.Contains(r.URL.Path, "/refused/") {
		w.WriteHeader(http.StatusForbidden)
	}
	fmt.Fprintf(w, "%s %s %s, %d bytes %v, %v\n", r.Method, r.RequestURI, r.Proto, len(body), err, r.TransferEncoding)
	r.Header.Del("Traceparent") // one of the servers has a collector of spans
	for _, key := range slices.Sorted(maps.Keys(r.Header)) {
		values := r.Header[key]
		if key == "Audit-Id" && len(values) == 1 && len(values[0]) == 36 {
			values = []string{"an id"}
		}
		fmt.Fprintf(w, "%s: %q\n", key, values)
	}
}

const extensionManifest = `
apiVersion: v1
kind: Service
metadata: {name: odd, namespace: default}
spec: {type: ExternalName, externalName: localhost}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.odd.example.com}
spec: {group: odd.example.com, version: v1, groupPriorityMinimum: 1000, versionPriority: 15, insecureSkipTLSVerify: true,
  service: {name: odd, namespace: default, port: PORT}}
`

// register makes a server serve the extension until the test ends.
func (e *extension) register(t *testing.T, s *cluster.Server) {
	t.Helper()
	_, port, _ := strings.Cut(e.Listener.Addr().String(), ":")
	apply(t, s, strings.Replace(extensionManifest, "PORT", port, 1))
	t.Cleanup(func() { kubectl(t, s, "delete", "service/odd", "apiservice/v1.odd.example.com") })
	eventually(t, s.Name+" serves the extension", func() bool {
		return do(t, s.Config(cluster.Admin), http.MethodGet, extensionPath, "").code == http.StatusOK
	})
}

// forge has the extension speak to the host as a stage does: a write is executed once all
// the same, and its response is passed on.
func (e *extension) forge(t *testing.T, s *cluster.Server) {
	t.Helper()
	for n, headers := range []string{"Content-Length: 2\r\n\r\n{}", "Connection: Upgrade\r\nUpgrade: shout\r\nContent-Length: 0\r\n\r\n"} {
		want := []int{http.StatusOK, http.StatusForbidden}[n]
		conn := dial(t, s)
		conn.send("POST " + extensionPath + "/things/forged HTTP/1.1\r\nHost: example\r\nAuthorization: Bearer admin-token\r\n" + headers)
		resp := conn.response("POST")
		if calls := e.forged.Load(); resp.StatusCode != want || calls != int64(n+1) || resp.Header.Get(header.Decline) != "" {
			t.Errorf("forged headers: %s %v after %d calls, want %d", resp.Status, resp.Header, calls, n+1)
		}
	}
}

// What an extension API server gets, and what comes of its redirects and switches of protocols, is the same as with
// kube-apiserver: the former are refused, the latter work, and errors are passed on.
func TestAggregatedRequests(t *testing.T) {
	t.Parallel()
	reference, err := kubeAPIServer()
	if err != nil {
		t.Fatal(err)
	}
	e := startExtension(t)
	servers := []*cluster.Server{reference.Server, theLong(t).Server}
	for _, s := range servers {
		e.register(t, s)
	}
	const upgrade = "Connection: Upgrade\r\nUpgrade: shout\r\n"
	for _, tc := range []struct {
		name, method, path, headers string
		want                        int
	}{
		{"a redirect", "GET", extensionPath + "/things/302", "", 502},
		{"a redirect that stays", "GET", extensionPath + "/things/308", "", 502},
		{"a redirect of a write", "POST", extensionPath + "/things/307", "Content-Length: 0\r\n", 502},
		{"a redirect of a watch", "GET", extensionPath + "/things/302?watch=1", "", 502},
		{"a redirect of an upgrade", "GET", extensionPath + "/things/302", upgrade, 503},
		{"not modified", "GET", extensionPath + "/things/304", "", 304},
		{"created", "POST", extensionPath + "/things/201", "Content-Length: 0\r\n", 201},
		{"unavailable", "GET", extensionPath + "/things/503", "", 503},
		{"an upgrade that is refused", "GET", extensionPath + "/things/refused", upgrade, 403},
		{"an upgrade to another protocol", "GET", extensionPath + "/things/exec", "Connection: Upgrade\r\nUpgrade: whisper\r\n", 400},
		{"an upgrade of somebody who may not", "GET", extensionPath + "/things/exec", upgrade + "Impersonate-User: nobody\r\n", 403},
		{"an upgrade", "GET", extensionPath + "/things/exec", upgrade, 101},
		{"who asks", "GET", extensionPath + "/things/seen", "", 200},
		{"who asks for another", "GET", extensionPath + "/things/seen", "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: gopher\r\nX-Real-Ip: 192.0.2.8\r\n", 200},
		{"who asks for an upgrade", "GET", extensionPath + "/things/refused/seen", "X-Forwarded-For: 192.0.2.7\r\n" + upgrade, 403},
		{"an audit id of the client's", "GET", extensionPath + "/things/seen", "Audit-ID: the-clients\r\n", 200},
		{"an audit id of the client's in an upgrade", "GET", extensionPath + "/things/refused/seen", "Audit-ID: the-clients\r\n" + upgrade, 403},
		{"a small body", "POST", extensionPath + "/things/seen", sized(10), 200},
		{"a large body", "POST", extensionPath + "/things/seen", sized(3 << 20), 200},
		{"a body of no length", "POST", extensionPath + "/things/seen", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", 200},
		{"a body that the client could hold back", "POST", extensionPath + "/things/seen", "Expect: 100-continue\r\n" + sized(100), 200},
		{"a GET with a body", "GET", extensionPath + "/things/seen", sized(10), 200},
		{"a DELETE with a body", "DELETE", extensionPath + "/things/seen", sized(10), 200},
		{"a response that may be kept", "GET", extensionPath + "/things/cached", "", 200},
		{"a watch that may be kept", "GET", extensionPath + "/cached?watch=1", "", 200},
		{"an early hint", "GET", extensionPath + "/hinted?watch=1", "", 200},
		{"an empty segment", "GET", extensionPath + "//things/seen", "", 200},
		{"a segment that says where it is", "GET", extensionPath + "/./things/seen", "", 200},
		{"a segment that leads up", "GET", extensionPath + "/x/../things/seen", "", 200},
		{"a segment that leads out", "GET", extensionPath + "/../../seen", "", 200},
		{"encoded segments that lead up", "POST", extensionPath + "/x/%2e%2e/y%2f..%2fthings/seen", sized(10), 200},
		{"a backslash", "GET", extensionPath + `/x\..\things/seen`, "", 200},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var said []string
			for _, s := range servers {
				hints := ""
				conn := dial(t, s)
				conn.send(tc.method + " " + tc.path + " HTTP/1.1\r\nHost: example\r\nAuthorization: Bearer admin-token\r\n" + tc.headers + "\r\n")
				resp := conn.response(tc.method)
				for resp.StatusCode == http.StatusContinue || resp.StatusCode == http.StatusEarlyHints {
					if resp.StatusCode == http.StatusEarlyHints { // kube-apiserver passes on 100 of the extension, too
						hints += resp.Header.Get("Link")
					}
					resp = conn.response(tc.method)
				}
				if resp.StatusCode != tc.want {
					t.Errorf("%s: %s, want %d", s.Name, resp.Status, tc.want)
				}
				if hints != "" { // kube-apiserver loses what its filters have said
					maps.DeleteFunc(resp.Header, func(key string, _ []string) bool { return key != "Link" })
				}
				said = append(said, hints+transcript(t, conn, resp))
				if strings.Contains(tc.path, "refused") {
					if _, err := conn.in.ReadByte(); err != io.EOF {
						t.Errorf("%s: after an upgrade that failed the connection is there: %v", s.Name, err)
					}
				}
			}
			if diff := cmp.Diff(said[0], said[1]); diff != "" {
				t.Errorf("Catena's response (+) is not kube-apiserver's (-):\n%s", diff)
			}
		})
	}
	for range 12 { // the server's own response, not that of the proxy, which runs out of time as well
		late := do(t, servers[1].Config(cluster.Admin), http.MethodGet, extensionPath+"/things/late?timeout=300ms", "")
		if late.code != http.StatusGatewayTimeout || !strings.Contains(late.body, `"reason":"Timeout"`) {
			t.Errorf("a response that is late: %d %s", late.code, late.body)
		}
	}
	e.forge(t, servers[1])
	select {
	case visit := <-e.visits:
		t.Errorf("somebody has followed the redirect to %s", visit)
	default:
	}

	e.Close()
	for _, s := range servers {
		for _, headers := range []string{"", upgrade} {
			conn := dial(t, s)
			conn.send("GET " + extensionPath + "/things/exec HTTP/1.1\r\nHost: example\r\nAuthorization: Bearer admin-token\r\n" + headers + "\r\n")
			if resp := conn.response("GET"); resp.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("%s without the extension (%q): %s, want 503", s.Name, headers, resp.Status)
			}
		}
	}
}

// sized are the last headers and a body of so many bytes; the line end that follows them all is its last.
func sized(n int) string {
	return fmt.Sprintf("Content-Length: %d\r\n\r\n", n) + strings.Repeat("x", n-len("\r\n"))
}

// transcript is a response, without what differs between two servers, and what comes
// back if one speaks after it.
func transcript(t *testing.T, conn *rawConn, resp *http.Response) string {
	t.Helper()
	for _, key := range []string{"Date", "Audit-Id", "X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid"} {
		if resp.Header[key] != nil {
			resp.Header[key] = []string{"some"}
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n%v\n%v\ncloses: %t\n", resp.Status, resp.Header, resp.TransferEncoding, resp.Close)
	if resp.StatusCode == http.StatusSwitchingProtocols {
		conn.send("one\n")
		out.WriteString(conn.line())
		conn.send("two\n")
		out.WriteString(conn.line())
		return out.String()
	}
	if _, err := io.Copy(&out, resp.Body); err != nil {
		fmt.Fprintf(&out, "ends with %v", err)
	}
	return out.String()
}
