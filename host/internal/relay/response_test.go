package relay

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// reportedOf records what a stage reports to the host.
type reportedOf struct {
	identity
	got []string
}

func (c *reportedOf) ResponseHeader(_ *http.Request, from Sender, key, value string) {
	c.got = append(c.got, from.Stage+" "+key+"="+value)
}

func (*reportedOf) HostResponseHeader(key string) bool { return key == "Audit-Id" }

func TestResponseHeaders(t *testing.T) {
	t.Parallel()
	stage := always(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nCache-Control: public\r\nwarning: 299 - \"b\"\r\naudit-id: 2\r\nStrict-Transport-Security: max-age=0\r\nMulti: 1\r\nMulti: 2\r\n"+
		"Connection: X-Listed, keep-alive\r\nX-Listed: x\r\nKeep-Alive: x\r\nProxy-Authenticate: x\r\nUpgrade: x\r\nX-Catena-Audit: {}\r\nX-Remote-User: x\r\nX-Catena-New: 1\r\n\r\nok")
	c := &reportedOf{}
	chain := newChain(t, Config{Propagator: c}, stage)
	chain.Set(Tables{All: order(1)}, []Stage{{Name: "a", Socket: stage, Kubernetes: true}})
	rec := httptest.NewRecorder()
	rec.Header().Set("Cache-Control", "no-cache, private")
	rec.Header().Set("Audit-Id", "1")
	rec.Header().Set("Strict-Transport-Security", "max-age=3600")
	rec.Header().Set("Warning", `299 - "a"`)
	rec.Header().Set("X-Listed", "by a filter")
	chain.ServeHTTP(rec, httptest.NewRequest("GET", "/", nil))
	var got strings.Builder
	rec.Result().Header.Write(&got)
	const want = "Audit-Id: 1\r\nCache-Control: public\r\nContent-Length: 2\r\nMulti: 1\r\nMulti: 2\r\n" +
		"Strict-Transport-Security: max-age=3600\r\nStrict-Transport-Security: max-age=0\r\nWarning: 299 - \"a\"\r\nWarning: 299 - \"b\"\r\nX-Listed: by a filter\r\n"
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", &got, want)
	}
	if _, guess := rec.Result().Header["Content-Type"]; !guess {
		t.Error("the server is left to guess a Content-Type that the stage has not sent")
	}
	if s := strings.Join(c.got, " "); s != "a X-Catena-Audit={} a X-Catena-New=1" {
		t.Errorf("the propagator got %s", s)
	}
}

// A stage that has no paths of the Kubernetes API says nothing of the whole origin: not where clients find it, not what
// they keep or forget of it, and nothing by a header that nobody has heard of yet.
func TestHeadersOfTheOrigin(t *testing.T) {
	t.Parallel()
	origin := []string{
		"alt-svc: h3=\":1\"", "Clear-Site-Data: *", "Service-Worker-Allowed: /", "NEL: {}", "Report-To: {}",
		"Reporting-Endpoints: a=\"/\"", "Strict-Transport-Security: max-age=1", "Accept-CH: DPR", "Critical-CH: DPR",
		"Speculation-Rules: \"/x\"", "Origin-Agent-Cluster: ?1", "Use-As-Dictionary: match=\"/*\"", "Of-Next-Year: x",
		"X-Accel-Redirect: /x", "X-Sendfile: /x", "Set-Cookie: a=b; Path=/", "Set-Cookie: a=b",
		"Set-Cookie: a=b; Path=/own; Path=/", "Set-Cookie: a=b; Path=/own; Path", "Set-Cookie: a=b; Path=/own; Domain=example.com",
		"Set-Cookie: a=b; Path=/ow", "Set-Cookie: a=b; Path=/apis",
	}
	own := []string{
		"Content-Type: text/plain", "Content-Security-Policy: sandbox", "Cache-Control: no-store", "ETag: x",
		"Location: /own/2", "X-Own: 1", "WWW-Authenticate: Basic", "RateLimit: x", "Warning: 299 - x",
		"Set-Cookie: a=b; HttpOnly; path=/own; Max-Age=9", "Grpc-Status: 0",
	}
	for _, kubernetes := range []bool{false, true} {
		for _, field := range append(origin, own...) {
			socket := always(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"+field+"\r\n\r\n")
			chain := newChain(t, Config{}, socket)
			chain.Set(Tables{All: order(1)}, []Stage{{Name: "a", Socket: socket, Kubernetes: kubernetes}})
			rec := httptest.NewRecorder()
			chain.ServeHTTP(rec, httptest.NewRequest("GET", "/own/path", nil))
			key, _, _ := strings.Cut(field, ":")
			if got, want := rec.Header().Get(key) != "", kubernetes || slices.Contains(own, field); got != want {
				t.Errorf("of a stage with paths of Kubernetes, %t: %s: passed %t", kubernetes, field, got)
			}
		}
	}
}

// A script of a stage becomes a service worker of what is below a directory of the stage's own alone.
func TestServiceWorkers(t *testing.T) {
	t.Parallel()
	socket := always(t, "HTTP/1.1 200 OK\r\nContent-Type: text/javascript\r\nContent-Length: 0\r\n\r\n")
	chain := newChain(t, Config{}, socket)
	chain.Set(Tables{All: order(1)}, []Stage{{Name: "a", Socket: socket}})
	for path, want := range map[string]bool{"/worker.js": false, "/apis/worker.js": false, "/own/worker.js": true} {
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("Service-Worker", "script")
		rec := httptest.NewRecorder()
		chain.ServeHTTP(rec, r)
		if got := rec.Header().Get("Content-Type") != ""; got != want {
			t.Errorf("%s: it has its type, %t", path, got)
		}
	}
}

// TestResponseShapes compares what a client gets through the relay with what it gets
// from the handler itself.
func TestResponseShapes(t *testing.T) {
	t.Parallel()
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/empty":
		case "/204":
			w.WriteHeader(http.StatusNoContent)
		case "/304":
			w.Header().Set("Etag", "x")
			w.WriteHeader(http.StatusNotModified)
		case "/length":
			w.Header().Set("Content-Length", "5")
			io.WriteString(w, "12345")
		case "/unknown":
			io.WriteString(w, "123")
			w.(http.Flusher).Flush()
			io.WriteString(w, "45")
		case "/large":
			io.WriteString(w, strings.Repeat("x", 300<<10))
		case "/untyped":
			w.Header()["Content-Type"] = nil
			io.WriteString(w, "<html>")
		case "/trailers":
			w.Header().Set("Trailer", "Announced, X-Catena-Audit")
			io.WriteString(w, "body")
			w.Header().Set("Announced", "1")
			w.Header().Set(http.TrailerPrefix+"Other", "2")
			w.Header().Set("X-Catena-Audit", "3")
		}
	})
	stage := serveStage(t, h)
	c := &reportedOf{}
	relayed, relayed2 := serve(t, newChain(t, Config{Propagator: c}, stage)), serveHTTP2(t, newChain(t, Config{}, stage))
	direct, direct2 := serve(t, h), serveHTTP2(t, h)
	for _, path := range []string{"/empty", "/204", "/304", "/length", "/unknown", "/large", "/untyped", "/trailers"} {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			if path == "/trailers" && method == "HEAD" {
				continue // what a server reports of them differs between HTTP/1 and HTTP/2
			}
			for _, servers := range [][2]*httptest.Server{{relayed, direct}, {relayed2, direct2}} {
				got, want := shape(t, servers[0], method, path), shape(t, servers[1], method, path)
				want = strings.ReplaceAll(want, " X-Catena-Audit:3", "")
				if got != want {
					t.Errorf("%s %s:\n got %.300s\nwant %.300s", method, path, got, want)
				}
			}
		}
	}
	if s := strings.Join(c.got, " "); s != strings.TrimSpace(strings.Repeat("a X-Catena-Audit=3 ", 2)) {
		t.Errorf("the propagator got %q from trailers", s)
	}
}

func shape(t *testing.T, srv *httptest.Server, method, path string) string {
	resp, body := fetch(t, srv, method, path, nil)
	resp.Header.Del("Date")
	if path == "/trailers" { // over HTTP/2, a response can have both a length and trailers
		resp.Header.Del("Content-Length")
		resp.ContentLength = -1
	}
	trailers := ""
	for _, key := range []string{"Announced", "Other", stagev1.HeaderAudit} {
		if v := resp.Trailer.Get(key); v != "" {
			trailers += " " + key + ":" + v
		}
	}
	return fmt.Sprintf("%s %d %v %v trailers%s: %d bytes %.20q", resp.Status, resp.ContentLength, resp.TransferEncoding, resp.Header, trailers, len(body), body)
}

// TestInformational shows that 103 is passed on to a client, past writers that would take it for the response, unless
// the request has a deadline, whose filter may respond at the same time, and never the stage's 100 to a client that
// asked for none.
func TestInformational(t *testing.T) {
	t.Parallel()
	const response = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\nX-Catena-A: y\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
	chain := newChain(t, Config{}, always(t, response))
	wrapped := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { chain.ServeHTTP(filterWriter{w}, r) })
	timed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Hour)
		defer cancel()
		wrapped.ServeHTTP(w, r.WithContext(ctx))
	})
	for _, tc := range []struct {
		h    http.Handler
		want string
	}{{chain, "103 [x] []"}, {wrapped, "103 [x] []"}, {timed, ""}} {
		srv := serve(t, tc.h)
		var got []string
		trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			got = append(got, fmt.Sprint(code, h["Link"], h["X-Catena-A"]))
			return nil
		}}
		req, _ := http.NewRequestWithContext(httptrace.WithClientTrace(context.Background(), trace), "GET", srv.URL, nil)
		resp, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if s := strings.Join(got, ", "); s != tc.want || resp.StatusCode != http.StatusNotFound || resp.Header.Get("Link") != "" {
			t.Errorf("informational %q, want %q; then %d %v", s, tc.want, resp.StatusCode, resp.Header)
		}
	}
}

// filterWriter wraps a writer as the filters of an API server do.
type filterWriter struct{ http.ResponseWriter }

func (w filterWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
func (w filterWriter) Flush()                      { w.ResponseWriter.(http.Flusher).Flush() }
func (w filterWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return w.ResponseWriter.(http.Hijacker).Hijack()
}

// TestMalformedResponses shows that a client gets an error, or a response that breaks
// off, and never a part that looks like a whole.
func TestMalformedResponses(t *testing.T) {
	t.Parallel()
	for name, response := range map[string]string{
		"no HTTP":              "hello\r\n\r\n",
		"100 without end":      strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 1000),
		"101 unasked":          "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
		"head too long":        "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", bounds.ResponseHead) + "\r\n\r\n",
		"Connection too long":  "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + strings.Repeat("Connection: a\r\n", 1000) + "\r\n",
		"length and chunks":    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
		"cut: chunk size":      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"cut: chunk too long":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n",
		"cut: size too long":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n11111111111111111\r\n",
		"cut: extension":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + strings.Repeat("x", 1<<20) + "\r\n",
		"cut: trailer":         "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nno colon\r\n\r\n",
		"cut: trailers no end": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + strings.Repeat("A: "+strings.Repeat("b", 1000)+"\r\n", bounds.ResponseHead/1000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := serve(t, newChain(t, Config{}, always(t, response)))
			resp, err := srv.Client().Get(srv.URL)
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			switch cut := strings.HasPrefix(name, "cut: "); {
			case cut && err == nil:
				t.Error("the client takes it for a whole response")
			case !cut && (err != nil || resp.StatusCode != http.StatusBadGateway):
				t.Errorf("%v, %v", resp, err)
			}
		})
	}
}
