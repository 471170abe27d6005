package system

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// A stage can hand on each request that it gets: the socket on which it calls the host takes heads as large as its own.
func TestLargeCallsOfStages(t *testing.T) {
	t.Parallel()
	l := theLong(t)
	socket := socketIn(t, filepath.Join(l.DataDir(), "run"), "core-*.host.sock")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://host/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Large", strings.Repeat("a", 3<<20))
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized { // it has no token
		t.Errorf("a head of 3 MiB gets %d", resp.StatusCode)
	}
}
