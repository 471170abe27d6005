package relay

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// TestRefusal shows that a request which may have been executed is sent again on the
// host's evidence alone: a stage can copy the header from a server that it proxies to.
func TestRefusal(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		value string
		want  string
	}{
		"the host's":     {"secret", "200 after 2"},
		"another value":  {"1", "503 after 1"},
		"an empty value": {"", "503 after 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var posts atomic.Int64
			socket := scriptStage(t, func(n int, c *net.UnixConn, r *bufio.Reader) {
				if _, err := http.ReadRequest(r); err != nil {
					return
				}
				posts.Add(1)
				if n == 0 {
					fmt.Fprintf(c, "HTTP/1.1 503 Service Unavailable\r\n%s: %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", stagev1.HeaderUndelivered, tc.value)
					return
				}
				fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			})
			chain := NewChain(Config{})
			chain.Set(Tables{All: order(1)}, []Stage{{Name: "a", Socket: socket, Refusal: "secret"}})
			defer chain.Set(Tables{All: order(0)}, nil)
			resp, _ := fetch(t, serve(t, chain), "POST", "/", nil)
			if got := fmt.Sprintf("%d after %d", resp.StatusCode, posts.Load()); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if h := resp.Header; h.Get(stagev1.HeaderUndelivered) != "" || h.Get("Retry-After") != "" {
				t.Errorf("the client gets %v", h)
			}
		})
	}
}
