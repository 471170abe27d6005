package hostile

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

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
	config := c.Config(cluster.Admin)
	address, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	client.NextProtos, client.Certificates, client.GetClientCertificate = []string{"h2"}, nil, nil
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hold := func() {
		for _, path := range []string{"/healthz?verbose&exclude=" + long, "/readyz?verbose&exclude=" + long, "/version"} {
			for range 5 {
				go holder{address.Host, client, false, func(c *holderConn) {
					c.request("GET", path, true)
					c.request("POST", path, true) // a body that does not come
				}}.run(ctx)
			}
		}
		time.Sleep(2 * time.Second) // they have sent it
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
