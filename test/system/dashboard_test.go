package system

import (
	"bufio"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// The page about the chain is for whoever may get it, and for nobody else; its updates last longer than other requests may, and
// do not hold up the end of the server.
func TestDashboard(t *testing.T) {
	t.Parallel()
	const requestTimeout = 2 * time.Second
	c, err := cluster.StartCatena(t.Context(), cluster.Options{Flags: map[string]string{"request-timeout": requestTimeout.String()}})
	if err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceValue(func() error { return c.Stop(t.Failed()) })
	t.Cleanup(func() { _ = stop() })
	admin := c.Config(cluster.Admin)
	page := do(t, admin, http.MethodGet, "/debug/catena/", "")
	if page.code != http.StatusOK || !strings.Contains(page.body, `id="stage-core"`) || !strings.Contains(page.header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("%d %v\n%s", page.code, page.header, page.body)
	}
	for _, path := range []string{"/debug/catena", "/debug/catena/", "/debug/catena/events", "/debug/catena/status", "/debug/catena/page.css", "/debug/catena/stages/core"} {
		r := do(t, c.Config(cluster.Bob), http.MethodGet, path, "")
		if r.code != http.StatusForbidden || strings.Contains(r.body, "aggregator") || strings.Contains(r.body, "extensions") {
			t.Errorf("%s for a user who may not get it: %d %s", path, r.code, r.body)
		}
	}
	if r := do(t, admin, http.MethodPost, "/debug/catena/", ""); r.code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d %s", r.code, r.body)
	}
	if r := do(t, admin, http.MethodGet, "/debug/catena/status", ""); !strings.Contains(r.body, `"requestsPerSecond"`) || r.header.Get("Content-Type") != "application/json" {
		t.Errorf("status: %d %s", r.code, r.body)
	}

	stream := send(t, admin, http.MethodGet, "/debug/catena/events", "", nil)
	defer stream.Body.Close()
	events := bufio.NewScanner(stream.Body)
	events.Buffer(nil, 1<<20)
	updates := 0
	for began := time.Now(); time.Since(began) < 2*requestTimeout; {
		if !events.Scan() {
			t.Fatalf("the updates ended after %s: %v", time.Since(began), events.Err())
		}
		if events.Text() == "event: live" {
			updates++
		}
	}
	if updates < 2 {
		t.Errorf("%d updates", updates)
	}
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	for events.Scan() {
	}
	if err := events.Err(); err != nil {
		t.Errorf("the updates were broken off at the end of the server: %v", err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}
