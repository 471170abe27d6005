package relay

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// What a server has responded to which a stage has passed a request for another protocol, has none of the headers of the host's filters, and
// its connection ends. A response of the stage's own has them, and so has one to a request that is none for another protocol.
func TestRawResponses(t *testing.T) {
	t.Parallel()
	const refused = "HTTP/1.1 403 Forbidden\r\nA: a\r\nX-Catena-Latency: x=1\r\n"
	const chunked = "X-Catena-Raw: true\r\nTransfer-Encoding: chunked\r\n\r\n"
	for name, tc := range map[string]struct {
		request, response string
		raw               bool
	}{
		"with a length":       {upgradeRequest, refused + "X-Catena-Raw: true\r\nContent-Length: 2\r\n\r\nno", true},
		"in chunks":           {upgradeRequest, refused + chunked + "2\r\nno\r\n0\r\nX-Sum: 1\r\nX-Catena-Audit: {}\r\n\r\n", true},
		"until its end":       {upgradeRequest, refused + "X-Catena-Raw: true\r\n\r\nno", true},
		"of the stage":        {upgradeRequest, refused + "Content-Length: 2\r\n\r\nno", false},
		"to another request":  {"GET /x HTTP/1.1\r\nHost: h\r\n\r\n", refused + "X-Catena-Raw: true\r\nContent-Length: 2\r\n\r\nno", false},
		"switching protocols": {upgradeRequest, switching + "no", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stage := scriptStage(t, func(_ int, c *net.UnixConn, r *bufio.Reader) {
				if _, err := http.ReadRequest(r); err == nil {
					_, _ = io.WriteString(c, tc.response)
				}
			})
			chain := newChain(t, Config{}, stage)
			srv := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Filter", "f")
				chain.ServeHTTP(w, r)
			}))
			conn, err := net.Dial("tcp", srv.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, tc.request)
			in := bufio.NewReader(conn)
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if has := resp.Header.Get("Filter") == "f" && resp.Header.Get("Date") != ""; has == tc.raw || len(resp.Header["X-Catena-Raw"]) > 0 {
				t.Errorf("the headers are %v", resp.Header)
			}
			body := make([]byte, 2)
			if _, err := io.ReadFull(io.MultiReader(resp.Body, in), body); err != nil || string(body) != "no" {
				t.Errorf("%q, %v", body, err)
			}
			if !tc.raw {
				return
			}
			if inChunks := strings.Contains(tc.response, "chunked"); inChunks != (len(resp.TransferEncoding) > 0) {
				t.Errorf("transfer encoding %v", resp.TransferEncoding)
			}
			_, err = resp.Body.Read(body)
			if sum := resp.Trailer.Get("X-Sum"); err != io.EOF || (sum == "1") != strings.Contains(tc.response, "X-Sum") {
				t.Errorf("after the body: %v, trailers %v", err, resp.Trailer)
			}
			if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
				t.Errorf("after the response: %q, %v", rest, err)
			}
		})
	}
}

// A raw response that breaks off does not look complete to the client.
func TestRawResponsesBreakOff(t *testing.T) {
	t.Parallel()
	const refused = "HTTP/1.1 403 Forbidden\r\nX-Catena-Raw: true\r\n"
	for name, response := range map[string]string{
		"with a length":      refused + "Content-Length: 5\r\n\r\nno",
		"between two chunks": refused + "Transfer-Encoding: chunked\r\n\r\n2\r\nno\r\n",
		"in a chunk":         refused + "Transfer-Encoding: chunked\r\n\r\n5\r\nno",
		"in the trailers":    refused + "Transfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\nX-Sum: ",
	} {
		stage := scriptStage(t, func(_ int, c *net.UnixConn, r *bufio.Reader) {
			if _, err := http.ReadRequest(r); err == nil {
				_, _ = io.WriteString(c, response)
			}
		})
		chain := newChain(t, Config{}, stage)
		for _, srv := range []*httptest.Server{serve(t, chain), serveTLS(t, chain)} {
			_, in := dialUpgrade(t, srv, "")
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(resp.Body); string(body) != "no" || err == nil {
				t.Errorf("%s: %q, %v", name, body, err)
			}
		}
	}
}
