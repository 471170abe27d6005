package hostile

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// endTime is how long the host may take to end, or another one to take its place.
const endTime = 20 * time.Second

// Clients without credentials that take none of their responses do not keep the host from ending.
func TestStrangersDoNotKeepTheHost(t *testing.T) { // not in parallel, since it measures
	long := strings.Repeat("x", 12_000)
	c, err := cluster.StartCatena(t.Context(), cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		if err := c.Stop(t.Failed()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	address, client := http2Client(t, c.Config(cluster.Admin), false)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hold := func() {
		var holding atomic.Int64
		for _, path := range []string{"/healthz?verbose&exclude=" + long, "/readyz?verbose&exclude=" + long, "/version"} {
			for range 5 {
				go holder{address, client, true, func(c *holderConn) {
					c.request("GET", path, true)
					c.request("POST", path, true) // a body that does not come
					holding.Add(1)
				}}.run(ctx)
			}
		}
		eventually(t, "all take none of a response", func() bool { return holding.Load() == 15 })
	}
	hold()
	began := time.Now()
	if out, err := c.Command(t.Context(), "upgrade"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if took := time.Since(began); took > endTime {
		t.Errorf("an upgrade took %s", took)
	}
	hold()
	began = time.Now()
	stop()
	if took := time.Since(began); took > endTime {
		t.Errorf("the end took %s", took)
	}
}
