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

// A stage that is killed comes back by itself, and the others do not notice. A stage
// that is suspended is unhealthy within seconds, and then killed and replaced.
func TestStagesKilled(t *testing.T) {
	t.Parallel()
	c := catena(t, cluster.Options{})
	l := startLoad(t, c.Server)
	l.awaitWrites(t, 5)
	for _, stage := range []string{"aggregator", "core", "extensions"} {
		before := c.Stages()
		began := time.Now()
		if err := syscall.Kill(before[stage], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, stage+" is back", func() bool {
			now := c.Stages()[stage]
			return now != 0 && now != before[stage] && do(t, c.Config(cluster.Admin), http.MethodGet, existing(stage), "").code == 200
		})
		eventually(t, "the server is ready", func() bool { return do(t, c.Config(cluster.Admin), http.MethodGet, "/readyz", "").code == 200 },
			func() string { return do(t, c.Config(cluster.Admin), http.MethodGet, "/readyz?verbose", "").body })
		t.Logf("%s was back after %s", stage, time.Since(began).Round(time.Millisecond))
		l.awaitWrites(t, 3)
		for other, pid := range before {
			if other == stage {
				continue
			}
			if now := c.Stages()[other]; now != pid {
				t.Errorf("when %s was killed, %s became another process", stage, other)
			}
			if f := l.failed(other, began); len(f) > 0 {
				t.Errorf("when %s was killed, %d reads of %s failed: %v", stage, len(f), other, f[0])
			}
		}
	}
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
			asked := time.Now()
			a := do(t, c.Config(cluster.Admin), http.MethodGet, endpoint+"?verbose", "")
			if took := time.Since(asked); a.code == 200 || !strings.Contains(a.body, "[-]extensions/") || took > 10*time.Second {
				t.Errorf("%s of a server with a suspended stage: %d after %s\n%s", endpoint, a.code, took, a.body)
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

// gracefulEnd is how long the end may take on a busy machine: less than clients' requests,
// watches and connections last.
const gracefulEnd = 20 * time.Second

// SIGTERM lets requests finish and ends watches and upgraded connections, within seconds.
func TestGracefulEnd(t *testing.T) {
	t.Parallel()
	c := catena(t, cluster.Options{
		ConfigFile: write(t, "catena.yaml", strings.Replace(longChain, "  core: {delegate: wardle}\n", "  core: {delegate: extensions}\n", 1)),
		PluginDirs: []string{plugins(t, "front", "middle", "behind")},
		Set:        []string{"stages.wardle=null"},
	})
	admin := c.Config(cluster.Admin)
	hook := startWebhook(t)
	apply(t, c.Server, hook.configuration())
	slow := func(name string) string {
		return fmt.Sprintf(`{"metadata": {"name": %q, "labels": {"slow": "yes"}}}`, name)
	}
	const maps = "/api/v1/namespaces/default/configmaps"
	eventually(t, "the webhook is asked", func() bool {
		do(t, admin, http.MethodPost, maps+"?dryRun=All", slow("try"))
		return hook.asked.Load() > 0
	})

	watches := map[string]<-chan error{}
	for _, path := range []string{maps + "?watch=1", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?watch=1", "/apis/apiregistration.k8s.io/v1/apiservices?watch=1"} {
		resp := send(t, admin, http.MethodGet, path, "", nil)
		watches[path] = drained(resp)
	}
	upgraded := dial(t, c.Server)
	upgraded.send("GET " + execOf("front") + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin-token\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n")
	if resp := upgraded.response("GET"); resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp.Status)
	}
	asked := hook.asked.Load()
	created := make(chan response, 1)
	go func() {
		defer close(created)
		created <- do(t, admin, http.MethodPost, maps, slow("in-flight"))
	}()
	eventually(t, "a request is in flight", func() bool { return hook.asked.Load() > asked })

	began := time.Now()
	if err := c.Process().Stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > gracefulEnd {
		t.Errorf("the end took %s", took)
	}
	if a := <-created; a.code != http.StatusCreated {
		t.Errorf("the request in flight got %d %s", a.code, a.body)
	}
	for path, end := range watches {
		if err := <-end; err != nil {
			t.Errorf("the watch of %s was broken off: %v", path, err)
		}
	}
	if _, err := upgraded.in.ReadByte(); err == nil || isTimeout(err) {
		t.Errorf("the upgraded connection is still there: %v", err)
	}
	if left := socketsBelow(c.DataDir()); len(left) > 0 {
		t.Errorf("sockets are left: %q", left)
	}
	if left := processesOf(c.DataDir()); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := do(t, c.Config(cluster.Admin), http.MethodGet, maps+"/in-flight", ""); a.code != 200 {
		t.Errorf("what was created at the end: %d", a.code)
	}
}
