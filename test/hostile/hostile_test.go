package hostile

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/test/internal/cluster"
)

var update = flag.Bool("update", false, "write the table of docs/security.md")

const patience = 2 * time.Minute

// install copies the test binary as the stage: a link would lead out of its directory.
func install(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	from, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	to, err := os.OpenFile(filepath.Join(dir, "catena-stage-hostile"), os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// start starts a server with the hostile stage upstream of Kubernetes' stages.
func start(t *testing.T, isolation, grants string) (*cluster.Catena, error) {
	t.Helper()
	c, err := cluster.StartCatena(t.Context(), cluster.Options{
		PluginDirs: []string{install(t)},
		Set:        []string{`stages.hostile={"lock":"off","delegate":"aggregator","isolation":"` + isolation + `","grants":` + grants + `}`},
	})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := c.Stop(t.Failed()); err != nil {
			t.Error(err)
		}
	})
	return c, nil
}

func get(ctx context.Context, config *rest.Config, path string) (int, string, error) {
	transport, err := rest.TransportFor(config)
	if err != nil {
		return 0, "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// attack has the stage try everything, in the name of an administrator, and returns what it got.
func attack(t *testing.T, c *cluster.Catena) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	victim := c.Stages()["core"]
	config := map[string]any{"dataDir": c.DataDir(), "host": strings.TrimPrefix(c.URL, "https://"), "victim": victim}
	encoded, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	admin := c.Config(cluster.Admin)
	code, body, err := get(ctx, admin, "/hostile?target="+url.QueryEscape(string(encoded)))
	if err != nil || code != http.StatusOK {
		t.Fatalf("%d %s, %v", code, body, err)
	}
	var got map[string]string
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	// It has claimed everything by now.
	if code, body, err := get(ctx, admin, secrets); err != nil || code != http.StatusOK || !strings.Contains(body, "SecretList") {
		t.Errorf("secrets are served with %d %s, %v", code, body, err)
	}
	return got
}

// TestHostile shows what a stage without grants gets: of what the host prevents, nothing, however the
// stage is isolated; of what the kernel prevents, nothing if it is.
func TestHostile(t *testing.T) {
	columns := map[string]map[string]string{}
	for _, isolation := range []string{"off", "auto", "required"} {
		t.Run(isolation, func(t *testing.T) {
			c, err := start(t, isolation, "{}")
			if err != nil && isolation == "required" {
				t.Skipf("this machine lacks a means: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			got := attack(t, c)
			columns[isolation] = got
			for _, a := range protocolAttempts {
				if got[a.name] != "" {
					t.Errorf("%s: %s", a.name, got[a.name])
				}
			}
			for _, a := range kernelAttempts {
				switch {
				case isolation == "required" && got[a.name] != "":
					t.Errorf("%s: %s", a.name, got[a.name])
				case isolation == "off" && got[a.name] == "":
					t.Logf("%s: prevented without isolation", a.name)
				}
			}
		})
	}
	if *update {
		write(t, columns)
	}
}

// TestGranted shows that the attempts are real: what is granted succeeds, as far as the user in
// whose name it is done may do it.
func TestGranted(t *testing.T) {
	c, err := start(t, "off", `{"rewrite":true,"delegates":true}`)
	if err != nil {
		t.Fatal(err)
	}
	got := attack(t, c)
	for name, want := range map[string]bool{
		"secrets through the request of a user who may read them": true,
		"secrets through a delegate":                              false, // as the stage's own user, who may not
		"secrets with its own client":                             false,
	} {
		if (got[name] != "") != want {
			t.Errorf("%s: %q", name, got[name])
		}
	}
}

var marked = regexp.MustCompile(`(?s)<!-- hostile: .*?-->\n.*?<!-- end -->`)

// write writes the table of what the stage got.
func write(t *testing.T, columns map[string]map[string]string) {
	t.Helper()
	var b strings.Builder
	b.WriteString("<!-- hostile: written by go test ./test/hostile -update, as root -->\n| attempt | `off` | `auto` | `required` |\n|---|---|---|---|\n")
	for _, a := range attempts {
		fmt.Fprintf(&b, "| %s |", a.name)
		for _, isolation := range []string{"off", "auto", "required"} {
			result := "nothing"
			if columns[isolation][a.name] != "" {
				result = "**" + columns[isolation][a.name] + "**"
			}
			b.WriteString(" " + result + " |")
		}
		b.WriteString("\n")
	}
	b.WriteString("<!-- end -->")
	file := filepath.Join(cluster.Root(), "docs", "security.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, marked.ReplaceAllLiteral(text, []byte(b.String())), 0o644); err != nil {
		t.Fatal(err)
	}
}
