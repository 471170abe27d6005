package relay

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// What a stage writes after it has declined, or after its response, does not reach a client: not the
// client of this request, and not that of the next on the same connection.
func TestStageWritesTooMuch(t *testing.T) {
	t.Parallel()
	const poison = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
	const declines = "HTTP/1.1 404 Not Found\r\nX-Catena-Decline: 1\r\nContent-Length: 0\r\n\r\n"
	const responses = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine"
	for name, tc := range map[string]struct {
		first string
		// later is sent when the response has arrived.
		later string
	}{
		"at once after a decline":  {first: declines + poison},
		"later after a decline":    {first: declines, later: poison},
		"at once after a response": {first: responses + poison},
		"later after a response":   {first: responses, later: poison},
		"a body after its decline": {first: strings.Replace(declines, "Length: 0", "Length: 6", 1) + "poison"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sent atomic.Int64
			got, wrote := make(chan struct{}, 100), make(chan struct{}, 100)
			bad := scriptStage(t, func(_ int, c *net.UnixConn, r *bufio.Reader) {
				for {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, req.Body)
					if _, err := io.WriteString(c, tc.first); err != nil {
						return
					}
					if tc.later != "" {
						<-got
						_, _ = io.WriteString(c, tc.later)
						sent.Add(1)
						wrote <- struct{}{}
					}
				}
			})
			t.Cleanup(func() { close(got) }) // the script may still wait for it
			good := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "good") }))
			srv := serve(t, newChain(t, Config{}, bad, good))
			want := "good"
			if strings.HasPrefix(tc.first, responses) {
				want = "fine"
			}
			for i := range 20 {
				resp, body := fetch(t, srv, "GET", "/", nil)
				if resp.StatusCode != http.StatusOK || body != want {
					t.Fatalf("request %d: %s %q, want %q", i, resp.Status, body, want)
				}
				if tc.later != "" {
					got <- struct{}{}
					within(t, "the stage to write on", wrote)
				}
			}
		})
	}
}
