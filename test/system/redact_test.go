package system

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// Watches that pass through a middleware end properly when it is swapped, after a whole event, and its process is gone soon after; the
// values of Secrets do not pass.
func TestRelayedWatches(t *testing.T) {
	t.Parallel()
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	const watches, spread = 50, 2 * time.Second
	c := catena(t, cluster.Options{PluginDirs: []string{filepath.Join(bin, "examples")}, Set: []string{
		"stages.aggregator.delegate=redact", `stages.redact={"lock":"off","delegate":"core","drainSpread":"2s",` +
			`"grants":{"claims":["/api/v1/secrets/**","/api/v1/namespaces/**","/api/v1/watch/**"]}}`,
	}})
	for _, args := range [][]string{
		{"create", "clusterrole", "reader", "--verb=get,list,watch,create", "--resource=secrets"},
		{"create", "clusterrolebinding", "reader", "--clusterrole=reader", "--user=jane"},
		{"create", "secret", "generic", "door", "--from-literal=word=sesame"},
	} {
		kubectl(t, c.Server, args...)
	}
	jane := c.Config(cluster.Admin)
	jane.Impersonate = rest.ImpersonationConfig{UserName: "jane"}
	client, err := rest.HTTPClientFor(jane)
	if err != nil {
		t.Fatal(err)
	}
	if out := kubectl(t, c.Server, "get", "secrets", "--as=jane", "-o", "jsonpath={.items[*].data.word}"); out != "cmVkYWN0ZWQ=" {
		t.Errorf("jane sees %q", out)
	}
	if out := kubectl(t, c.Server, "get", "secret", "door", "-o", "jsonpath={.data.word}"); out != "c2VzYW1l" {
		t.Errorf("the administrator sees %q", out)
	}
	seen := make(chan struct{}, 1000)
	var ends sync.WaitGroup
	for i := range watches {
		ends.Go(func() {
			if err := watchRedacted(t.Context(), client, c.URL+"/api/v1/namespaces/default/secrets?watch=true", seen); err != nil {
				t.Errorf("watch %d: %v", i, err)
			}
		})
	}
	for range watches { // each has the Secret that there is
		<-seen
	}
	old := c.Stages()["redact"]
	if out, err := c.Command(t.Context(), "swap", "redact", "--probation", "500ms"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	begun := time.Now()
	eventually(t, "the process that was replaced is gone", func() bool { return c.StageProcesses()[old] == "" })
	ends.Wait()
	t.Logf("the process was gone %s after the swap, with a spread of %s", time.Since(begun).Round(10*time.Millisecond), spread)
	for _, line := range strings.Split(string(read(c.Process().Log)), "\n") {
		if strings.Contains(line, "at the end of its drain") {
			t.Error(line)
		}
	}
}

// watchRedacted reads events until the watch ends, which has to be properly.
func watchRedacted(ctx context.Context, client *http.Client, url string, seen chan<- struct{}) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for events := json.NewDecoder(resp.Body); ; {
		var event struct {
			Type   string
			Object struct{ Data map[string]string }
		}
		switch err := events.Decode(&event); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case event.Type != "ADDED" || event.Object.Data["word"] != "cmVkYWN0ZWQ=":
			return fmt.Errorf("event %+v", event)
		}
		seen <- struct{}{}
	}
}
