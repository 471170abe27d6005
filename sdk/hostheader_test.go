package sdk_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// TestHostHeaders shows that a server to which a stage proxies cannot speak to the host in
// the stage's name, whichever way it responds.
func TestHostHeaders(t *testing.T) {
	t.Parallel()
	remote := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer c.Close()
			fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: test\r\n%s: 1\r\n%s: {}\r\n\r\nhello", stagev1.HeaderDecline, stagev1.HeaderAudit)
			return
		}
		w.Header().Set("Trailer", stagev1.HeaderAudit)
		for _, key := range []string{stagev1.HeaderDecline, stagev1.HeaderUndelivered, stagev1.HeaderAudit, stagev1.HeaderLatency} {
			w.Header().Set(key, "forged=1")
		}
		io.WriteString(w, "mine")
		w.Header().Set(stagev1.HeaderAudit, "forged=1")
	}))
	t.Cleanup(remote.Close)
	target, err := url.Parse(remote.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	stage := stagetest.Start(t, sdk.Stage{Name: "proxy", New: func(env *sdk.Env) (http.Handler, error) {
		env.ClaimPrefix("/")
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			sdk.SetHostHeader(w, stagev1.HeaderLatency, "etcd=7")
			if r.URL.Path != "/raw" {
				proxy.ServeHTTP(w, r)
				return
			}
			c, err := net.Dial("tcp", target.Host)
			if err != nil {
				panic(err)
			}
			defer c.Close()
			_ = r.Write(c)
			mine, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			defer mine.Close()
			_, _ = io.Copy(mine, c)
		}), nil
	}}, stagetest.Options{})

	t.Run("response", func(t *testing.T) {
		for _, method := range []string{"GET", "POST"} {
			resp := ask(t, stage.Socket(), method, "/", "")
			body, _ := io.ReadAll(resp.Body)
			if string(body) != "mine" || forged(resp.Header)+forged(resp.Trailer) != "" {
				t.Errorf("%s: %q, forged: %s %s", method, body, forged(resp.Header), forged(resp.Trailer))
			}
			if got := resp.Header.Get(stagev1.HeaderLatency); got != "etcd=7" {
				t.Errorf("%s: the stage's own header is %q", method, got)
			}
		}
	})
	for _, path := range []string{"/upgraded", "/raw"} {
		t.Run(path, func(t *testing.T) {
			resp := ask(t, stage.Socket(), "GET", path, "Connection: Upgrade\r\nUpgrade: test\r\n")
			if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get(stagev1.HeaderDecline) != "" || resp.Header.Get(stagev1.HeaderAudit) != "" {
				t.Errorf("%s %v", resp.Status, resp.Header)
			}
			after := make([]byte, 5)
			if _, err := io.ReadFull(resp.Body, after); err != nil || string(after) != "hello" {
				t.Errorf("after the head: %q, %v", after, err)
			}
		})
	}
}

func forged(h http.Header) string {
	for key, values := range h {
		if strings.HasPrefix(key, stagev1.HeaderPrefix) && strings.Contains(strings.Join(values, ","), "forged") {
			return key
		}
	}
	return ""
}

// switched reads from and writes to a connection.
type switched struct {
	io.Reader
	io.WriteCloser
}

// ask sends a request to a socket. The body of a 101 is what follows on the connection.
func ask(t *testing.T, socket, method, path, headers string) *http.Response {
	t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: stage\r\n%s\r\n", method, path, headers)
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body = switched{r, c}
	}
	return resp
}
