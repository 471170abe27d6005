package relay

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// parrot is a stage that reads no body and goes on with the connection: a body is its next request. Its response is the
// path.
func parrot(t *testing.T) string {
	return scriptStage(t, func(_ int, c *net.UnixConn, r *bufio.Reader) {
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			if _, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(req.URL.Path), req.URL.Path); err != nil {
				return
			}
		}
	})
}

// A body that a stage takes for a request gets nobody a response, and the stage is told of: also one that says that it
// reads bodies.
func TestBodyTakenForRequest(t *testing.T) {
	t.Parallel()
	const smuggled = "GET /evil HTTP/1.1\r\nHost: h\r\n\r\n"
	for _, discards := range []bool{false, true} {
		t.Run(fmt.Sprint("discards=", discards), func(t *testing.T) {
			t.Parallel()
			limited := make(chan string, 1000)
			chain := newChain(t, Config{Limited: func(stage, limit, _ string) { limited <- stage + " " + limit }})
			chain.Set(Tables{All: order(1)}, []Stage{{Name: "a", Socket: parrot(t), DiscardsBodies: discards}})
			srv := serve(t, chain)
			for range 50 {
				fetch(t, srv, "POST", "/mine", strings.NewReader(smuggled))
				if resp, body := fetch(t, srv, "GET", "/other", nil); body != "/other" && !discards {
					t.Fatalf("%s %q, which is the response to somebody's body", resp.Status, body)
				}
			}
			if got := within(t, "the report", limited); got != "a "+LimitStray {
				t.Errorf("reported: %s", got)
			}
		})
	}
}

// What stages do that keep to the rules is not told of: they discard a body, or close; and their connections are used
// as they say.
func TestBodiesLeftProperly(t *testing.T) {
	t.Parallel()
	for name, discards := range map[string]bool{"a new connection each time": false, "one connection": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connections := make(chan int, 1000)
			stage := scriptStage(t, func(n int, c *net.UnixConn, r *bufio.Reader) {
				connections <- n
				for {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, req.Body)
					if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"); err != nil {
						return
					}
				}
			})
			chain := newChain(t, Config{Limited: func(stage, limit, _ string) { t.Error(stage, limit) }})
			chain.Set(Tables{All: order(1)}, []Stage{{Name: "a", Socket: stage, DiscardsBodies: discards}})
			srv := serve(t, chain)
			const writes = 3 * maxSpent
			for range writes {
				fetch(t, srv, "POST", "/", strings.NewReader("body"))
				fetch(t, srv, "GET", "/", nil)
			}
			chain.Set(Tables{All: order(0)}, nil) // spent connections are looked at once more
			want := writes + 1
			if discards {
				want = 1
			}
			if got := len(connections); got != want {
				t.Errorf("%d connections for %d writes, want %d", got, writes, want)
			}
		})
	}
}
