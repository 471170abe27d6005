package relay

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// identity is a propagator that adds what the host alone may say.
type identity struct{}

func (identity) AppendRequestHeaders(dst []byte, _ *http.Request) []byte {
	return append(dst, stagev1.HeaderUser+": {\"name\":\"host\"}\r\n"...)
}
func (identity) HostHeader(key string) bool                           { return key == "Audit-Id" }
func (identity) ResponseHeader(*http.Request, Sender, string, string) {}

func (identity) HostResponseHeader(string) bool { return false }

// describe is a stage that responds with the request as it sees it.
func describe(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s host=%q path=%q body=%q length=%d te=%v err=%v\n", r.Method, r.RequestURI, r.Host, r.URL.Path, body, r.ContentLength, r.TransferEncoding, err)
	r.Header.Write(w)
	for key, values := range r.Trailer {
		fmt.Fprintf(w, "trailer %s: %q\n", key, values)
	}
}

// exchangeRaw sends bytes to a server and returns its first response.
func exchangeRaw(t testing.TB, addr net.Addr, request string) (status int, body string) {
	t.Helper()
	c, err := net.Dial(addr.Network(), addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestRequestHead(t *testing.T) {
	t.Parallel()
	stage := serveStage(t, http.HandlerFunc(describe))
	srv := serve(t, newChain(t, Config{Propagator: identity{}}, stage))
	for _, tc := range []struct {
		name, request string
		status        int
		has, lacks    []string
	}{
		{name: "plain", request: "GET /x?a=b&c HTTP/1.1\r\nHost: h\r\nAccept: a/b\r\nAccept: c/d\r\n\r\n",
			has: []string{"GET /x?a=b&c host=\"h\"", "Accept: a/b\r\nAccept: c/d\r\n", `X-Catena-User: {"name":"host"}`, "X-Catena-Request: "}},
		{name: "path kept", request: "GET /a/../b//c/%2f/%2e%2e/%41;x?%2f=../ HTTP/1.1\r\nHost: h\r\n\r\n",
			has: []string{"GET /a/../b//c/%2f/%2e%2e/%41;x?%2f=../ "}},
		{name: "path of slashes", request: "GET //host/x HTTP/1.1\r\nHost: h\r\n\r\n", has: []string{"GET //host/x "}},
		{name: "empty query", request: "GET /x? HTTP/1.1\r\nHost: h\r\n\r\n", has: []string{"GET /x? "}},
		{name: "absolute form", request: "GET http://other/x HTTP/1.1\r\nHost: h\r\n\r\n", has: []string{`GET /x host="other"`}},
		{name: "absolute form without a path", request: "GET http://other?q HTTP/1.1\r\nHost: h\r\n\r\n", has: []string{`GET http://other?q host="other" path=""`}},
		{name: "authority form", request: "CONNECT other:1 HTTP/1.1\r\nHost: h\r\n\r\n", has: []string{`CONNECT other:1 host="other:1" path=""`}},
		{name: "CONNECT with a path", request: "CONNECT /x HTTP/1.1\r\nHost: h\r\n\r\n", has: []string{`CONNECT /x host="h" path="/x"`}},
		{name: "opaque target", request: "GET mailto:x HTTP/1.1\r\nHost: h\r\n\r\n", has: []string{`GET mailto:x host="h" path=""`}},
		{name: "HTTP/1.0", request: "GET /x HTTP/1.0\r\n\r\n", has: []string{`GET /x host=""`}},

		{name: "forged identity", request: "GET / HTTP/1.1\r\nHost: h\r\nX-Catena-User: forged\r\nx-catena-user: forged\r\nX-CATENA-Next: forged\r\n" +
			"X-Remote-User: forged\r\nx-remote-group: forged\r\nX-Remote-Extra-a: forged\r\nX_Remote_User: forged\r\nX-Catena_User: forged\r\nx_catena-audit: forged\r\n\r\n",
			has: []string{`X-Catena-User: {"name":"host"}`}, lacks: []string{"forged"}},
		{name: "headers alike", request: "GET / HTTP/1.1\r\nHost: h\r\nX-Remotely: kept\r\nX-Catenary: kept\r\nX-Catena: kept\r\n\r\n",
			has: []string{"X-Remotely: kept", "X-Catenary: kept", "X-Catena: kept"}},
		{name: "identity listed in Connection", request: "GET / HTTP/1.1\r\nHost: h\r\nConnection: X-Catena-User, x-catena-request, Host\r\n\r\n",
			has: []string{`host="h"`, `X-Catena-User: {"name":"host"}`, "X-Catena-Request: "}, lacks: []string{"Connection"}},
		{name: "set by the host and listed in Connection", request: "GET / HTTP/1.1\r\nHost: h\r\nConnection: Audit-ID, audit-id\r\nConnection: A\r\nAudit-ID: kept\r\nA: x\r\n\r\n",
			has: []string{"Audit-Id: kept"}, lacks: []string{"A: x", "Connection"}},
		{name: "listed in Connection", request: "GET / HTTP/1.1\r\nHost: h\r\nConnection: a,  keep-alive ,B\r\nConnection: c\r\nA: x\r\nB: x\r\nC: x\r\nD: kept\r\n\r\n",
			has: []string{"D: kept"}, lacks: []string{"A: x", "B: x", "C: x", "Connection"}},
		{name: "hop by hop", request: "GET / HTTP/1.1\r\nHost: h\r\nKeep-Alive: x\r\nProxy-Connection: x\r\nProxy-Authorization: x\r\nTe: gzip\r\nUpgrade: x\r\n\r\n",
			lacks: []string{"Keep-Alive", "Proxy", "Te:", "Upgrade"}},
		{name: "credentials", request: "GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer SECRET\r\nauthorization: Basic SECRET\r\nImpersonate-User: forged\r\nimpersonate_group: forged\r\n" +
			"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.SECRET, v4.channel.k8s.io\r\nsec-websocket-protocol:a ,\tBase64URL.bearer.authorization.K8S.io.SECRET,b\r\n" +
			"Sec-WebSocket-Protocol: \u00a0base64url.bearer.authorization.k8s.io.SECRET\r\nSec_WebSocket_Protocol: base64url.bearer.authorization.k8s.io.SECRET\r\nCookie: kept=1\r\n\r\n",
			has: []string{"Sec-Websocket-Protocol: v4.channel.k8s.io\r\nSec-Websocket-Protocol: a, b\r\n", "Cookie: kept=1"}, lacks: []string{"SECRET", "forged", "Authorization", "Sec_"}},
		{name: "credentials in trailers", request: "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: T, Authorization\r\n\r\n0\r\nT: v\r\nAuthorization: SECRET\r\n" +
			"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.SECRET\r\n\r\n", has: []string{`trailer T: ["v"]`}, lacks: []string{"SECRET"}},
		{name: "TE: trailers", request: "GET / HTTP/1.1\r\nHost: h\r\nTE: deflate, trailers\r\n\r\n", has: []string{"Te: trailers\r\n"}},

		{name: "length", request: "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", has: []string{`body="abc" length=3`}},
		{name: "no length", request: "POST / HTTP/1.1\r\nHost: h\r\n\r\n", has: []string{`body="" length=0`}, lacks: []string{"Content-Length"}},
		{name: "length zero", request: "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", has: []string{`body="" length=0`, "Content-Length: 0"}},
		{name: "length twice", request: "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", has: []string{`body="abc" length=3`}},
		{name: "two lengths", status: 400, request: "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc"},
		{name: "chunks", request: "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", has: []string{`body="abc" length=-1 te=[chunked]`}},
		{name: "length and chunks", request: "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 30\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
			has: []string{`body="abc" length=-1 te=[chunked]`}, lacks: []string{"Content-Length"}},
		{name: "broken chunks", status: 400, request: "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"},
		{name: "trailers", request: "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: T, X-Remote-User\r\n\r\n3\r\nabc\r\n0\r\nT: v\r\nX-Remote-User: forged\r\n\r\n",
			has: []string{`body="abc"`, `trailer T: ["v"]`}, lacks: []string{"forged", "Remote"}},
		{name: "body of a GET", request: "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", has: []string{`body="abc" length=3`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			status, body := exchangeRaw(t, srv.Listener.Addr(), tc.request)
			if tc.status == 0 {
				tc.status = http.StatusOK
			}
			if status != tc.status {
				t.Fatalf("status %d, want %d: %s", status, tc.status, body)
			}
			for _, s := range tc.has {
				if !strings.Contains(body, s) {
					t.Errorf("the stage has not got %q:\n%s", s, body)
				}
			}
			for _, s := range tc.lacks {
				if strings.Contains(body, s) {
					t.Errorf("the stage has got %q:\n%s", s, body)
				}
			}
		})
	}
}
