package system

import (
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// What clients do to their connections, Catena takes as kube-apiserver does.
func TestOddConnections(t *testing.T) {
	t.Parallel()
	l := theLong(t)
	reference, err := kubeAPIServer()
	if err != nil {
		t.Fatal(err)
	}
	const (
		maps    = "/api/v1/namespaces/default/configmaps"
		secrets = "/api/v1/namespaces/default/secrets"
		common  = " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin-token\r\nContent-Type: application/json\r\n"
	)
	configMap := func(name string, size int) string {
		return `{"metadata":{"name":"` + name + `"},"data":{"a":"` + strings.Repeat("x", size) + `"}}`
	}
	small, large, huge := configMap("small", 10), configMap("large", 500_000), configMap("huge", 4_000_000)
	for name, play := range map[string]func(c *rawConn){
		"a head of 100 KiB": func(c *rawConn) {
			c.send("GET " + maps + common + "X-Odd: " + strings.Repeat("a", 100<<10) + "\r\n\r\n")
		},
		"a head of 2 MiB":   func(c *rawConn) { c.send("GET " + maps + common + "X-Odd: " + strings.Repeat("a", 2<<20) + "\r\n\r\n") },
		"a target of 2 MiB": func(c *rawConn) { c.send("GET " + maps + "?x=" + strings.Repeat("a", 2<<20) + common + "\r\n") },
		"10,000 headers":    func(c *rawConn) { c.send("GET " + maps + common + strings.Repeat("X-Odd: a\r\n", 10_000) + "\r\n") },
		"a body of 500 KB":  func(c *rawConn) { c.send("POST " + maps + "?dryRun=All" + common + length(large) + large) },
		"a body of 4 MB":    func(c *rawConn) { c.send("POST " + maps + "?dryRun=All" + common + length(huge) + huge) },
		"chunks of 4 MB": func(c *rawConn) {
			c.send("POST " + maps + "?dryRun=All" + common + "Transfer-Encoding: chunked\r\n\r\n" + chunks(huge))
		},
		"a length of 1 TB": func(c *rawConn) {
			c.send("POST " + maps + "?dryRun=All" + common + "Content-Length: 1000000000000\r\n\r\n" + huge)
		},
		"a body in two parts": func(c *rawConn) {
			c.send("POST " + maps + "?dryRun=All" + common + length(small) + small[:9])
			time.Sleep(300 * time.Millisecond)
			c.send(small[9:])
		},
		"a body that is late": func(c *rawConn) { // both response when they have the whole body, and not before
			before := c.timeouts("secrets")
			c.send("POST " + secrets + "?dryRun=All&timeout=1s" + common + length(small) + small[:9])
			eventually(c.t, "the request is given up", func() bool { return c.timeouts("secrets") > before })
			c.send(small[9:])
		},
		"chunks that are late": func(c *rawConn) {
			c.send("POST " + maps + "?dryRun=All&timeout=1s" + common + "Transfer-Encoding: chunked\r\n\r\n3\r\n{\"m")
		},
		"half closed after a request": func(c *rawConn) { c.send("GET " + maps + common + "Connection: close\r\n\r\n"); _ = c.CloseWrite() },
		"half closed in a body": func(c *rawConn) {
			c.send("POST " + maps + "?dryRun=All" + common + length(small) + small[:9])
			_ = c.CloseWrite()
		},
		"half closed in chunks": func(c *rawConn) {
			c.send("POST " + maps + "?dryRun=All" + common + "Transfer-Encoding: chunked\r\n\r\n3\r\n{\"m")
			_ = c.CloseWrite()
		},
		"two requests at once": func(c *rawConn) {
			c.send("POST " + maps + "?dryRun=All" + common + length(small) + small + "GET /version" + common + "\r\n")
		},
		"a body for GET":    func(c *rawConn) { c.send("GET " + maps + common + length(small) + small) },
		"a body for DELETE": func(c *rawConn) { c.send("DELETE " + maps + "/none" + common + length(small) + small) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := reaction(t, l.Server, play)
			want := "504 Gateway Timeout; closed"
			// A body that is not read ahead within the request's time ends its connection here;
			// kube-apiserver waits for the rest of it, and for that of chunks for ever.
			if name != "chunks that are late" && name != "a body that is late" {
				want = reaction(t, reference.Server, play)
			}
			if strings.HasPrefix(name, "half closed") {
				want, got = raced.ReplaceAllString(want, ""), raced.ReplaceAllString(got, "")
			}
			if want != got {
				t.Errorf("Catena: %s\nkube-apiserver: %s", got, want)
			}
		})
	}
}

// raced is a response that kube-apiserver gives, or does not give, to a client that has closed its
// half of the connection: it takes that for the end of the request, while it works on it.
var raced = regexp.MustCompile(`^(200 OK|500 Internal Server Error|504 Gateway Timeout); `)

// timeouts is how many requests to create such an object the server has given up.
func (c *rawConn) timeouts(resource string) float64 {
	c.t.Helper()
	return counter(c.t, c.server.Config(cluster.Admin), "apiserver_request_terminations_total", `verb="POST"`, `code="504"`, `resource="`+resource+`"`)
}

// probe is a request at the end of a connection: its response, 200, shows that the
// connection can still be used.
const probe = "GET /version HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin-token\r\nConnection: close\r\n\r\n"

// reaction is the statuses of all answers to what is played, and to a probe that is sent
// after the first, until the server closes the connection.
func reaction(t *testing.T, s *cluster.Server, play func(*rawConn)) string {
	t.Helper()
	c := dial(t, s)
	done := make(chan struct{})
	go func() { defer close(done); play(c) }()
	defer func() { c.Close(); <-done }()
	out := ""
	for {
		resp, err := http.ReadResponse(c.in, nil)
		switch {
		case isTimeout(err):
			t.Errorf("neither a response nor the end of the connection after %q", out)
			return out
		case err != nil:
			return out + "closed"
		}
		_, err = io.Copy(io.Discard, resp.Body)
		if out == "" {
			c.send(probe)
		}
		out += resp.Status
		if err != nil {
			out += " (broken)"
		}
		out += "; "
	}
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

func length(body string) string { return "Content-Length: " + itoa(len(body)) + "\r\n\r\n" }

func chunks(body string) string {
	var b strings.Builder
	for len(body) > 0 {
		n := min(len(body), 4000)
		b.WriteString(chunk(body[:n]))
		body = body[n:]
	}
	return b.String() + "0\r\n\r\n"
}
