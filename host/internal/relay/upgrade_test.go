package relay

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/catena-dev/catena/host/internal/relay/h1"
)

const upgradeRequest = "GET /exec HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4\r\n\r\n"

const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4\r\n\r\n"

// upgradeStage is a stage that switches protocols and then talks.
func upgradeStage(t testing.TB, talk func(c *net.UnixConn, r *bufio.Reader)) string {
	return scriptStage(t, func(_ int, c *net.UnixConn, r *bufio.Reader) {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if h1.UpgradeOf(req) != "SPDY/3.1" || req.Header.Get("X-Stream-Protocol-Version") != "v4" {
			t.Errorf("the stage got %v", req.Header)
		}
		talk(c, r)
	})
}

// dialUpgrade sends an upgrade request, and what the client has to say at once.
func dialUpgrade(t testing.TB, srv *httptest.Server, early string) (halfCloser, *bufio.Reader) {
	t.Helper()
	var c halfCloser
	plain, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c = plain.(*net.TCPConn)
	if srv.TLS != nil {
		c = tls.Client(plain, &tls.Config{InsecureSkipVerify: true})
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, upgradeRequest+early); err != nil {
		t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// want101 reads the head of a 101.
func want101(t testing.TB, r *bufio.Reader) {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 101 || resp.Header.Get("Upgrade") != "SPDY/3.1" || resp.Header.Get("Connection") != "Upgrade" || resp.Header.Get("X-Stream-Protocol-Version") != "v4" {
		t.Fatalf("%s %v", resp.Status, resp.Header)
	}
}

func readLine(t testing.TB, r *bufio.Reader) string {
	t.Helper()
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	return strings.TrimSpace(line)
}

// TestUpgrade has both ends send before the other could have asked for it, then talk,
// then end one direction after the other, each of them first.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	for _, stageFirst := range []bool{true, false} {
		stage := upgradeStage(t, func(c *net.UnixConn, r *bufio.Reader) {
			io.WriteString(c, switching+"stage's early word\n")
			fmt.Fprintf(c, "stage got: %s\n", readLine(t, r))
			fmt.Fprintf(c, "stage got: %s\n", readLine(t, r))
			if stageFirst {
				c.CloseWrite()
			}
			rest, _ := io.ReadAll(r)
			if string(rest) != "client's last word\n" {
				t.Errorf("stage got %q at the end", rest)
			}
			if !stageFirst {
				io.WriteString(c, "stage's last word\n")
			}
		})
		h := newChain(t, Config{}, stage)
		for name, srv := range map[string]*httptest.Server{"plain": serve(t, h), "filtered": serve(t, filtered(h)), "TLS": serveTLS(t, h)} {
			c, r := dialUpgrade(t, srv, "client's early word\n")
			want101(t, r)
			for _, want := range []string{"stage's early word", "stage got: client's early word"} {
				if got := readLine(t, r); got != want {
					t.Errorf("%s: client got %q, want %q", name, got, want)
				}
			}
			io.WriteString(c, "second word\n")
			if got := readLine(t, r); got != "stage got: second word" {
				t.Errorf("%s: client got %q", name, got)
			}
			last := ""
			if stageFirst {
				if rest, err := io.ReadAll(r); len(rest) != 0 || err != nil {
					t.Errorf("%s: client got %q, %v at the end", name, rest, err)
				}
			} else {
				last = "stage's last word\n"
			}
			io.WriteString(c, "client's last word\n")
			c.CloseWrite()
			if rest, err := io.ReadAll(r); string(rest) != last || err != nil {
				t.Errorf("%s: client got %q, %v at the end", name, rest, err)
			}
		}
	}
}

// filtered wraps h with a writer like those of an API server's filters.
func filtered(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(filterWriter{w}, r) })
}

func serveTLS(t testing.TB, h http.Handler) *httptest.Server {
	srv := httptest.NewTLSServer(h)
	t.Cleanup(srv.Close)
	return srv
}

// TestUpgradeEnds shows that the other end sees it when one is gone for good.
func TestUpgradeEnds(t *testing.T) {
	t.Parallel()
	t.Run("client", func(t *testing.T) {
		t.Parallel()
		ended := make(chan struct{})
		stage := upgradeStage(t, func(c *net.UnixConn, r *bufio.Reader) {
			io.WriteString(c, switching)
			io.Copy(io.Discard, r)
			close(ended)
		})
		c, r := dialUpgrade(t, serve(t, newChain(t, Config{}, stage)), "")
		want101(t, r)
		c.Close()
		within(t, "the stage to see the end", ended)
	})
	t.Run("stage", func(t *testing.T) {
		t.Parallel()
		stage := upgradeStage(t, func(c *net.UnixConn, r *bufio.Reader) {
			io.WriteString(c, switching)
			io.WriteString(c, strings.Repeat("x", 1<<20))
			// Closed with what the client sends not being read.
		})
		var seen observed
		c, r := dialUpgrade(t, serve(t, newChain(t, Config{Observe: seen.observe}, stage)), strings.Repeat("y", 1000))
		want101(t, r)
		if n, err := io.Copy(io.Discard, r); n != 1<<20 {
			t.Errorf("client got %d bytes, %v", n, err)
		}
		// The client keeps its own direction open: the relay must not wait for it.
		eventually(t, "the relay to be done", func() bool { return seen.String() == "a upgraded" })
		c.Close()
	})
	t.Run("context", func(t *testing.T) {
		t.Parallel()
		ended := make(chan struct{})
		stage := upgradeStage(t, func(c *net.UnixConn, r *bufio.Reader) {
			io.WriteString(c, switching)
			io.Copy(io.Discard, r)
			close(ended)
		})
		h, cancel := cancellable(newChain(t, Config{}, stage))
		_, r := dialUpgrade(t, serve(t, h), "")
		want101(t, r)
		cancel()
		within(t, "the stage to see the end", ended)
		if rest, _ := io.ReadAll(r); len(rest) > 0 {
			t.Errorf("client got %q", rest)
		}
	})
}

// TestUpgradeRefused shows that only a 101 switches: any other response is one.
func TestUpgradeRefused(t *testing.T) {
	t.Parallel()
	stage := upgradeStage(t, func(c *net.UnixConn, r *bufio.Reader) {
		io.WriteString(c, "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
	})
	srv := serve(t, newChain(t, Config{}, stage))
	_, r := dialUpgrade(t, srv, "")
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusForbidden || string(body) != "no" {
		t.Errorf("%s %q", resp.Status, body)
	}
}

// TestUpgradeAfterADecline shows that a stage which declines does not get in the way.
func TestUpgradeAfterADecline(t *testing.T) {
	t.Parallel()
	never := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { decline(w) }))
	stage := upgradeStage(t, func(c *net.UnixConn, r *bufio.Reader) {
		io.WriteString(c, switching)
		io.WriteString(c, readLine(t, r)+"\n")
	})
	c, r := dialUpgrade(t, serve(t, newChain(t, Config{}, never, stage)), "")
	want101(t, r)
	io.WriteString(c, "hello\n")
	if got := readLine(t, r); got != "hello" {
		t.Errorf("got %q", got)
	}
}
