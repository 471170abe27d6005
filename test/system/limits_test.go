package system

import (
	"context"
	"crypto/tls"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// helloConfig is the file of a chain of one stage, hello, which gets every request.
func helloConfig(t *testing.T) string {
	t.Helper()
	shipped := string(read(filepath.Join(cluster.Root(), "configs", "hello.yaml")))
	return write(t, "catena.yaml", strings.Replace(shipped, "\n  hello:\n", "\n  hello:\n    grants: {claims: [\"/**\"]}\n", 1))
}

// smallCatena runs a chain of test stages and nothing of Kubernetes.
func smallCatena(t *testing.T, stages string, flags map[string]string, names ...string) *cluster.Catena {
	t.Helper()
	all := map[string]string{"authorization-mode": "AlwaysAllow"}
	maps.Copy(all, flags)
	config := helloConfig(t)
	if stages != "" {
		config = write(t, "catena.yaml", stages)
	}
	return catena(t, cluster.Options{ConfigFile: config, PluginDirs: []string{plugins(t, names...)}, Flags: all})
}

// Where priority and fairness is off, max-requests-inflight limits reads and
// max-mutating-requests-inflight the rest, and neither limits administrators or watches.
func TestMaxInFlight(t *testing.T) {
	c := smallCatena(t, "", map[string]string{
		"enable-priority-and-fairness": "false", "max-requests-inflight": "1", "max-mutating-requests-inflight": "1",
	}, "hello")
	bob, admin := c.Config(cluster.Bob), c.Config(cluster.Admin)
	const path = "/stage/hello"
	status := func(config *rest.Config, method string) int { return do(t, config, method, path, "").code }

	for method, other := range map[string]string{http.MethodGet: http.MethodPost, http.MethodPost: http.MethodGet} {
		eventually(t, "nobody is in the way of "+method, func() bool { return status(bob, method) == http.StatusOK })
		release := occupy(t, c, method, path+"/wait?id="+method)
		a := do(t, bob, method, path, "")
		if a.code != http.StatusTooManyRequests || a.header.Get("Retry-After") != "1" || a.body != "Too many requests, please try again later.\n" {
			t.Errorf("%s beside another: %d %v %q", method, a.code, a.header, a.body)
		}
		if code := status(bob, other); code != http.StatusOK {
			t.Errorf("%s beside %s: %d", other, method, code)
		}
		if code := status(admin, method); code != http.StatusOK {
			t.Errorf("the administrator's %s: %d", method, code)
		}
		if code := do(t, bob, http.MethodGet, "/api/v1/things?watch=true", "").code; code != http.StatusNotFound {
			t.Errorf("a watch beside %s: %d", method, code)
		}
		release()
		eventually(t, "bob may "+method+" again", func() bool { return status(bob, method) == http.StatusOK })
	}
}

// occupy sends a request of alice's that goes on until release is called.
func occupy(t *testing.T, c *cluster.Catena, method, path string) (release func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, method, c.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := httpClient(t, c.Config(cluster.Alice))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := client.Do(req); err == nil {
			_ = resp.Body.Close()
			t.Errorf("%s %s: %s", method, path, resp.Status)
		}
	}()
	eventually(t, "the stage has the request", func() bool {
		return strings.Contains(string(read(c.Process().Log)), "waits: id="+method)
	})
	return func() {
		cancel()
		<-done
	}
}

// Clients without credentials who send half of a head, and another when their connection is closed, keep nobody from sending a large request.
func TestHalfHeads(t *testing.T) {
	c := smallCatena(t, "", nil, "hello")
	const clients = 150
	half := []byte("GET / HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("a", 1_000_000))
	address, ended := strings.TrimPrefix(c.URL, "https://"), t.Context().Done()
	var holding atomic.Int64
	for range clients {
		go func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
				if err != nil {
					continue
				}
				stop := context.AfterFunc(t.Context(), func() { conn.Close() })
				if _, err := conn.Write(half); err == nil {
					holding.Add(1)
					_, _ = io.Copy(io.Discard, conn)
					holding.Add(-1)
				}
				stop()
				conn.Close()
			}
		}()
	}
	refused := func() float64 {
		return counter(t, c.Config(cluster.Admin), "catena_connections_refused_total", `bound="heads"`)
	}
	eventually(t, "the heads have come to the bound", func() bool { return refused() > 0 })
	body := strings.Repeat("b", 60_000)
	for range 30 {
		config := rest.CopyConfig(c.Config(cluster.Admin))
		config.Dial = new(net.Dialer).DialContext // its own connection
		if got := do(t, config, http.MethodPost, "/stage/hello", body); got.code != http.StatusOK {
			t.Errorf("%d %s", got.code, got.body)
		}
	}
	if n := holding.Load(); n < clients/2 {
		t.Errorf("%d clients hold half a head", n)
	}
}
