package relay

import (
	"bufio"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestLostTwice shows that a request which was sent again, and has taken its second process
// with it, gets an error that says so, and does not invite the client to send it once
// more. A connection that the stage closes without having read the request proves nothing.
func TestLostTwice(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		unread int // the number of the connection that is closed unread, from 0; -1 for none
		status int
		retry  bool
	}{
		"both":       {unread: -1, status: http.StatusInternalServerError},
		"the second": {unread: 0, status: http.StatusServiceUnavailable, retry: true},
		"the first":  {unread: 1, status: http.StatusServiceUnavailable, retry: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stage := scriptStage(t, func(n int, _ *net.UnixConn, r *bufio.Reader) {
				if n == tc.unread {
					r.ReadByte()
					return
				}
				http.ReadRequest(r)
			})
			var seen observed
			srv := serve(t, newChain(t, Config{Observe: seen.observe}, stage))
			req, _ := http.NewRequest("GET", srv.URL, nil)
			req.Header.Set("X-Long", strings.Repeat("x", 100<<10)) // more than is read at once
			resp, err := srv.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != tc.status || (resp.Header.Get("Retry-After") != "") != tc.retry {
				t.Errorf("%s, Retry-After %q", resp.Status, resp.Header.Get("Retry-After"))
			}
			if got := seen.String(); got != "a replayed, a lost" {
				t.Errorf("observed %s", got)
			}
		})
	}
}

// TestLostAndMoved shows that a request which one process was lost with, and which the next one
// breaks off because another takes its place, is sent to that one.
func TestLostAndMoved(t *testing.T) {
	t.Parallel()
	next := serveStage(t, respondsWith("moved"))
	var chain *Chain
	stage := scriptStage(t, func(n int, _ *net.UnixConn, r *bufio.Reader) {
		http.ReadRequest(r)
		if n == 1 {
			chain.Set(Tables{All: order(1)}, []Stage{{Name: "a", Socket: next}})
		}
	})
	var seen observed
	chain = newChain(t, Config{Observe: seen.observe}, stage)
	resp, body := fetch(t, serve(t, chain), "GET", "/", nil)
	if resp.StatusCode != http.StatusOK || body != "moved" {
		t.Errorf("%s %s", resp.Status, body)
	}
	if got := seen.String(); got != "a replayed, a replayed, a served" {
		t.Errorf("observed %s", got)
	}
}
