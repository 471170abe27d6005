package system

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// A stage that is suspended is unhealthy within seconds, and then killed and replaced, and the others do not notice.
func TestStageSuspended(t *testing.T) {
	t.Parallel()
	c := catena(t, cluster.Options{})
	l := startLoad(t, c.Server)
	l.awaitWrites(t, 5)
	suspend(t, c, l)
	l.stop()
	l.verify(t)
}

// suspend stops the stage extensions without its consent.
func suspend(t *testing.T, c *cluster.Catena, l *load) {
	t.Helper()
	pid, began := c.Stages()["extensions"], time.Now()
	if err := cluster.Suspend(pid); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	var endpoints sync.WaitGroup // all at once, before the stage is replaced
	for _, endpoint := range []string{"/readyz", "/livez", "/healthz"} {
		endpoints.Go(func() {
			a := do(t, c.Config(cluster.Admin), http.MethodGet, endpoint+"?verbose", "")
			if a.code == 200 || !strings.Contains(a.body, "[-]extensions/") { // as it would be if it waited for another process
				t.Errorf("%s of a server with a suspended stage: %d\n%s", endpoint, a.code, a.body)
			}
		})
	}
	endpoints.Wait()
	eventually(t, "the suspended stage is replaced", func() bool {
		now := c.Stages()["extensions"]
		return now != 0 && now != pid && do(t, c.Config(cluster.Admin), http.MethodGet, "/readyz", "").code == 200
	})
	l.awaitWrites(t, 3)
	for _, other := range []string{"aggregator", "core"} {
		if f := l.failed(other, began); len(f) > 0 {
			t.Errorf("while extensions was suspended, %d reads of %s failed: %v", len(f), other, f[0])
		}
	}
}

// A GET that ends the process of its stage is sent to a second one, and to no third: the
// error says why, and does not invite clients to send it again.
func TestRequestThatCrashes(t *testing.T) {
	t.Parallel()
	c := smallCatena(t, "apiVersion: catena.dev/v1alpha1\nkind: HostConfiguration\napiserver: {secure-port: 0}\nstages:\n  crashing: {lock: off}\n", nil, "crashing")
	config := c.Config(cluster.Bob)
	well := func() bool { return do(t, config, http.MethodGet, "/crashing", "").code == http.StatusOK }
	eventually(t, "the stage serves", well)
	for range 2 {
		a := do(t, config, http.MethodGet, "/crashing/now", "")
		if a.code != http.StatusInternalServerError || a.header.Get("Retry-After") != "" || !strings.Contains(a.body, "twice") {
			t.Errorf("%d, Retry-After %q: %s", a.code, a.header.Get("Retry-After"), a.body)
		}
		eventually(t, "the stage serves again", well)
	}
	if n := counter(t, c.Config(cluster.Admin), "catena_relay_hops_total", `outcome="lost",stage="crashing"`); n != 2 {
		t.Errorf("%v requests were lost, want 2", n)
	}
}

// The death of the host takes the stages with it, and costs no acknowledged write; nor
// does the death of all at once.
func TestHostKilled(t *testing.T) {
	t.Parallel()
	c := catena(t, cluster.Options{})
	l := startLoad(t, c.Server)
	for _, kill := range []struct {
		what string
		do   func()
	}{
		{"the host", func() { c.Process().Kill() }},
		{"everything", c.KillAll},
	} {
		l.awaitWrites(t, 20)
		kill.do()
		eventually(t, "with "+kill.what+" all processes end", func() bool { return len(processesOf(c.DataDir())) == 0 },
			func() string { return fmt.Sprint(processesOf(c.DataDir())) })
		l.stop()
		acked := l.acked
		began := time.Now()
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Logf("started again in %s", time.Since(began).Round(time.Millisecond))
		l = resumeLoad(t, c.Server)
		l.mu.Lock()
		l.acked = acked
		l.mu.Unlock()
	}
	l.awaitWrites(t, 3)
	l.stop()
	l.verify(t)
}

// drained reads a response to its end, and then delivers how it ended.
func drained(resp *http.Response) <-chan error {
	end := make(chan error, 1)
	go func() {
		defer resp.Body.Close()
		_, err := io.Copy(io.Discard, resp.Body)
		end <- err
	}()
	return end
}

func names(t *testing.T, list string) []string {
	t.Helper()
	var objects struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	if err := json.Unmarshal([]byte(list), &objects); err != nil {
		t.Fatalf("%v: %.300s", err, list)
	}
	var names []string
	for _, o := range objects.Items {
		names = append(names, o.Metadata.Name)
	}
	return names
}
