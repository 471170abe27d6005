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
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
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
			`"grants":{"claims":["/api/v1/secrets/**","/api/v1/namespaces/*/secrets/**",` +
			`"/api/v1/watch/secrets/**","/api/v1/watch/namespaces/*/secrets/**"]}}`,
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
	noSpellingShows(t, client, c.URL)
	for path, asked := range map[string]bool{
		"/api/v1/namespaces/default/secrets/door": true, "/api/v1/watch/namespaces/default/secrets": true,
		"/api/v1/namespaces/default/configmaps": false,
	} {
		out, err := c.Command(t.Context(), "explain", "GET", path)
		if err != nil || strings.Contains(out, "redact responds") != asked {
			t.Errorf("%s: %v\n%s", path, err, out)
		}
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
	if out, err := c.Command(t.Context(), "swap", "core", "--probation", "500ms"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	kubectl(t, c.Server, "create", "secret", "generic", "gate", "--from-literal=word=sesame")
	for range watches { // none has ended: what a stage calls goes on in core's next process
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

// noSpellingShows looks for a path by which the Secret is got with its value: slashes, dots and characters encoded,
// doubled and put in, and letters that are others.
func noSpellingShows(t *testing.T, client *http.Client, url string) {
	t.Helper()
	paths := []string{
		"/api/v1/namespaces/default/secrets/door", "/api/v1/namespaces/default/secrets", "/api/v1/secrets",
		"/api/v1/watch/secrets?timeoutSeconds=1", "/api/v1/watch/namespaces/default/secrets?timeoutSeconds=1",
		"/api/v1/namespaces/default/secrets?watch=true&timeoutSeconds=1",
	}
	var found atomic.Int32
	var all errgroup.Group
	all.SetLimit(50) // watches take a second
	for _, target := range paths {
		path, query, _ := strings.Cut(target, "?")
		upper := strings.ToUpper(path[:7]) + path[7:]
		spellings := []string{path, path + "/", "/" + path, path + "/.", path + "%2F", upper, path + ";x"}
		for i, c := range path {
			before, after := path[:i], path[i+1:]
			others := []string{fmt.Sprintf("%%%02X", c), fmt.Sprintf("%%25%02X", c)}
			if c == '/' {
				others = append(others, "//", "/./", "/x/../", "/%2E/", `\`, "/;/")
			}
			for _, other := range others {
				spellings = append(spellings, before+other+after)
			}
		}
		for _, spelling := range spellings {
			all.Go(func() error {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
				if err != nil {
					return err
				}
				r.URL.Opaque, r.URL.RawQuery = spelling, query
				resp, err := client.Do(r)
				if err != nil {
					return nil // the client does not send it
				}
				body, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if strings.Contains(string(body), "c2VzYW1l") {
					return fmt.Errorf("%s: %s", spelling, body)
				}
				if strings.Contains(string(body), "cmVkYWN0ZWQ=") {
					found.Add(1)
				}
				return nil
			})
		}
	}
	if err := all.Wait(); err != nil || found.Load() < 100 {
		t.Errorf("the Secret was found %d times; %v", found.Load(), err)
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
