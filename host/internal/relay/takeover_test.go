package relay

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
)

// What a server has responded to which a stage has passed a request for another protocol, has none of the headers of the host's filters, and
// its connection ends. A response of the stage's own has them, and so has one to a request that is none for another protocol.
func TestRawResponses(t *testing.T) {
	t.Parallel()
	const refused = "HTTP/1.1 403 Forbidden\r\nA: a\r\nX-Catena-Latency: x=1\r\n"
	for name, tc := range map[string]struct {
		request, response string
		raw               bool
	}{
		"with a length":       {upgradeRequest, refused + "X-Catena-Raw: true\r\nContent-Length: 2\r\n\r\nno", true},
		"in chunks":           {upgradeRequest, refused + "X-Catena-Raw: true\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n", true},
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
			if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
				t.Errorf("after the response: %q, %v", rest, err)
			}
		})
	}
}
