package system

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// beside is kube-apiserver, and Catena with the same command line, each with an etcd of its own.
type beside struct{ reference, catena *cluster.KubeAPIServer }

// startBeside starts both. flags returns the flags of one of them, whose files are in a directory.
func startBeside(t *testing.T, flags func(name, dir string) map[string]string) *beside {
	t.Helper()
	return &beside{
		reference: startCommandLine(t, kubeAPIServerPath(t), flags("kube-apiserver", t.TempDir())),
		catena:    startCommandLine(t, asKubeAPIServer(t), flags("catena", t.TempDir())),
	}
}

// startCommandLine starts a program with the command line of kube-apiserver, which ends with the test.
func startCommandLine(t *testing.T, path string, flags map[string]string) *cluster.KubeAPIServer {
	t.Helper()
	k, err := cluster.NewKubeAPIServer(cluster.Options{Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Stop(t.Failed()); err != nil {
			t.Error(err)
		}
	})
	if err := k.Start(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	return k
}

// both are the servers by name.
func (b *beside) both() map[string]*cluster.KubeAPIServer {
	return map[string]*cluster.KubeAPIServer{"kube-apiserver": b.reference, "catena": b.catena}
}

// differing are the parts of texts that differ between two servers, and what stands for them.
var differing = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`eyJ[\w-]+\.[\w-]+\.[\w-]+`), "TOKEN"},
	{regexp.MustCompile(`generated-[a-z0-9]{5}`), "generated-NAME"},
	{regexp.MustCompile(`^(\d+[smh])+$`), "AGE"},
	{regexp.MustCompile(`192\.0\.2\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`X509SHA256=[0-9a-f]+`), "X509SHA256=HASH"},
}

// sameEverywhere returns a value without what differs between two servers: ids, times and versions of resources.
func sameEverywhere(value any) any {
	switch v := value.(type) {
	case string:
		for _, d := range differing {
			v = d.pattern.ReplaceAllString(v, d.by)
		}
		return v
	case map[string]any:
		out := map[string]any{}
		for key, inner := range v {
			switch key {
			case "resourceVersion", "continue":
			case "resourceRules", "nonResourceRules": // in any order
				list, _ := inner.([]any)
				out[key] = len(list)
			default:
				out[key] = sameEverywhere(inner)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, inner := range v {
			out[i] = sameEverywhere(inner)
		}
		return out
	}
	return value
}

// decoded is the value of a JSON text.
func decoded(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v: %.200s", err, text)
	}
	return v
}
