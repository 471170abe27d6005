package config

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// loadYAML loads one file with the given text below apiVersion and kind.
func loadYAML(t *testing.T, text string, set ...string) (*Config, error) {
	t.Helper()
	p := &problems{}
	text = "apiVersion: " + APIVersion + "\nkind: " + Kind + "\n" + text
	return load([]*layer{parseLayer("test.yaml", []byte(text), p)}, Options{Set: set}, p)
}

func mustLoadYAML(t *testing.T, text string, set ...string) *Config {
	t.Helper()
	c, err := loadYAML(t, text, set...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTypedResult(t *testing.T) {
	t.Parallel()
	c := mustLoadYAML(t, `
pluginDirs: [a, b]
store: {endpoints: [https://a:2379], quotaBytes: 5}
apiserver: {v: 2, authorization-mode: [Node, RBAC]}
stages:
  hello:
    delegate: core
    sha256: 0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef
    env: {GOMAXPROCS: 2}
    config: {list: [1, {a: null}]}
    identity: {groups: [mine]}
  core: {startTimeout: 5s}
`)
	got := map[string]any{
		"dirs": c.PluginDirs, "store": c.Store, "flags": c.APIServer, "order": c.Order, "stages": c.Stages, "log": c.Log,
	}
	want := map[string]any{
		"dirs": []string{"a", "b"},
		"store": Store{Endpoints: []string{"https://a:2379"}, Prefix: "/registry",
			CompactionInterval: 5 * time.Minute, QuotaBytes: 5},
		"flags": map[string][]string{"v": {"2"}, "authorization-mode": {"Node", "RBAC"}},
		"order": []string{"hello", "core"},
		"stages": map[string]Stage{
			"hello": {Name: "hello", Delegate: "core", Lock: "required", StartTimeout: time.Minute,
				LivenessTimeout: 15 * time.Second, Watches: "resume",
				DrainTimeout: time.Minute, DrainSpread: 5 * time.Second,
				Required: true, Probation: 30 * time.Second,
				Sha256:   strings.Repeat("0123456789abcdef", 4),
				Env:      map[string]string{"GOMAXPROCS": "2"},
				Config:   map[string]any{"list": []any{1, map[string]any{"a": nil}}},
				Identity: Identity{User: "system:catena:stage:hello", Groups: []string{"mine"}},
				Grants:   Grants{Claims: []string{}, Store: "none", Files: []string{}}, Isolation: "auto"},
			"core": {Name: "core", Lock: "off", StartTimeout: 5 * time.Second,
				LivenessTimeout: 15 * time.Second, Watches: "resume",
				DrainTimeout: time.Minute, DrainSpread: 5 * time.Second,
				Required: true, Probation: 30 * time.Second,
				Identity: Identity{User: "system:apiserver", Groups: []string{"system:masters"}},
				Grants:   Grants{Claims: []string{"/**"}, SystemRequests: true, Store: "registry", Keys: true, Network: true, Files: []string{}}, Isolation: "off"},
		},
		"log": Log{Level: "info", StageLevel: "auto", Format: "text"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if chain := c.Chain(); len(chain) != 2 || chain[0].Name != "hello" || chain[1].Name != "core" {
		t.Errorf("Chain() = %v, want hello and core", chain)
	}
}

func TestWhere(t *testing.T) {
	t.Parallel()
	c := mustLoadYAML(t, "apiserver:\n  v: 2\nstages:\n  core:\n    config: {a.b: 1}\n", "dataDir=/x")
	for key, want := range map[string]string{
		"apiserver.v":                 "test.yaml:4",
		"apiserver.unknown":           "test.yaml:3",
		"dataDir":                     "--set dataDir",
		"log.level":                   "default",
		"stages.core.binary":          "test.yaml:6",
		`stages.core.config.a\.b`:     "test.yaml:7",
		"stages.core.config.a.b":      "test.yaml:7",
		"stages.core.identity.groups": "catena:shipped.yaml:15",
		"nonsense":                    "default",
	} {
		if got := c.Where(key); got != want {
			t.Errorf("Where(%s) = %s, want %s", key, got, want)
		}
	}
}

// The layers of one Load must not share memory with what the caller may change.
func TestEffectiveIsACopy(t *testing.T) {
	t.Parallel()
	c := mustLoadYAML(t, "stages: {core: {}}")
	c.Effective()[0].Key = "changed"
	if c.Effective()[0].Key == "changed" {
		t.Error("a caller can change the configuration")
	}
}

func TestErrorsAreProblems(t *testing.T) {
	t.Parallel()
	_, err := loadYAML(t, "datadir: x\nstages: {core: {}}", "zzz")
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%v joins no errors", err)
	}
	want := []Problem{
		{Source: "--set zzz", Message: "want KEY=VALUE"},
		{Source: "test.yaml", Line: 3, Key: "datadir", Message: `unknown key (did you mean "dataDir"?)`},
	}
	var got []Problem
	for _, e := range joined.Unwrap() {
		var p *Problem
		if !errors.As(e, &p) {
			t.Fatalf("%v is no Problem", e)
		}
		got = append(got, *p)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestExampleConfigs(t *testing.T) {
	t.Parallel()
	orders := map[string]string{
		"catena.yaml":          "aggregator core extensions controllers",
		"kube-apiserver.yaml":  "aggregator core extensions",
		"extensions-only.yaml": "extensions",
		"hello.yaml":           "hello",
	}
	files, err := filepath.Glob("../../../configs/*.*") // what is in directories is no configuration of a host
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		want, ok := orders[name]
		if !ok {
			t.Errorf("%s: no test knows this example", file)
		}
		c, err := Load(Options{Files: []string{file}})
		if err != nil {
			t.Error(err)
			continue
		}
		if got := strings.Join(c.Order, " "); got != want {
			t.Errorf("%s: order is %s, want %s", file, got, want)
		}
		delete(orders, name)
	}
	if len(orders) > 0 {
		t.Errorf("examples that do not exist: %v", orders)
	}
}

// FuzzLoad feeds bytes as a file of each format, a variable and a flag. Whatever
// they are, the result is a configuration that can be handed on, or Problems.
func FuzzLoad(f *testing.F) {
	head := "apiVersion: " + APIVersion + "\nkind: " + Kind + "\n"
	f.Add("yaml", []byte(head+"stages: {a: {delegate: b, config: {x: [1, .5, ~]}}, b: {}}"), "CATENA_DATA_DIR=x", "stages.c.delegate=a")
	f.Add("yaml", []byte("a: &a [*a]\n? {}\n: !!binary x\n<<: 1"), "CATENA_STAGES_A_ENV_X=y", `a\.b.c=null`)
	f.Add("json", []byte(`{"apiVersion": "`+APIVersion+`", "kind": "`+Kind+`", "stages": {"a": {"config": {"n": 1e400}}}}`), "CATENA_APISERVER_V=[1]", `stages={"a":null}`)
	f.Add("toml", []byte("apiVersion = \""+APIVersion+"\"\nkind = \""+Kind+"\"\n[stages.a]\n[[x]]\ny = 1979-05-27"), "CATENA_SERVICE_HOST=", "apiserver.v=[[]]")
	f.Fuzz(func(t *testing.T, format string, data []byte, env, set string) {
		file := "fuzz." + format
		if formatOf(file) == nil {
			return
		}
		p := &problems{}
		var layers []*layer
		if l := parseLayer(file, data, p); l != nil {
			layers = append(layers, l)
		}
		c, err := load(layers, Options{Env: []string{env}, Set: []string{set}}, p)
		if err != nil {
			for e := range strings.SplitSeq(err.Error(), "\n") {
				if e == "" {
					t.Errorf("an empty line in the error %q", err)
				}
			}
			if strings.Contains(err.Error(), "decode merged") || strings.Contains(err.Error(), "merge ") && len(p.list) == 0 {
				t.Errorf("not a problem of the user: %v", err)
			}
			return
		}
		if _, err := json.Marshal(c.Stages); err != nil {
			t.Errorf("a stage's configuration is no JSON: %v", err)
		}
		if len(c.Order) != len(c.Stages) || len(c.Effective()) == 0 {
			t.Errorf("order %v of stages %v", c.Order, c.Stages)
		}
		c.Where(set)
	})
}

// A stage needs a lock unless the configuration, or what ships with Catena, says otherwise,
// whether or not it is declared or disabled.
func TestNeedsLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "catena.yaml")
	text := "apiVersion: catena.dev/v1alpha1\nkind: HostConfiguration\nstages:\n  a: {delegate: b}\n  b: {delegate: core, lock: off}\n  c: {disabled: true, lock: off}\n  core: {delegate: extensions, lock: required}\n  extensions: {}"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(Options{Files: []string{path, path}})
	if err != nil {
		t.Fatal(err)
	}
	for stage, want := range map[string]bool{"a": true, "b": false, "c": false, "core": true, "extensions": false, "aggregator": false, "other": true} {
		if got := c.NeedsLock(stage); got != want {
			t.Errorf("NeedsLock(%s) = %t", stage, got)
		}
	}
	if want := filepath.Join(filepath.Dir(path), "catena.lock"); c.LockFile() != want {
		t.Errorf("lock file is %q, want %q", c.LockFile(), want)
	}
	c, err = Load(Options{Set: []string{"stages.a={}"}})
	if err != nil || c.LockFile() != "" {
		t.Errorf("without a file: lock file is %q, error %v", c.LockFile(), err)
	}
}

// What another user of the machine could change is not read.
func TestFilesThatOthersCanChange(t *testing.T) {
	t.Parallel()
	const text = "apiVersion: catena.dev/v1alpha1\nkind: HostConfiguration\nstages: {a: {}}\n"
	for name, c := range map[string]struct {
		open string // below the directory
		mode os.FileMode
		want string
	}{
		"nothing":           {"etc", 0o755, ""},
		"sticky directory":  {"etc", 0o777 | os.ModeSticky, ""},
		"file":              {"etc/catena.yaml", 0o646, "FILE: can be changed by every user of this machine; run chmod o-w FILE"},
		"directory":         {"etc", 0o757, "etc/catena.yaml: is below a directory that can be changed by every user of this machine; run chmod o-w FILE"},
		"conf.d":            {"etc/conf.d", 0o777 | os.ModeSticky, "FILE: can be changed by every user of this machine; run chmod o-w FILE"},
		"file of conf.d":    {"etc/conf.d/a.yaml", 0o602, "FILE: can be changed by every user of this machine; run chmod o-w FILE"},
		"other than a file": {"etc/conf.d/README", 0o666, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Join(dir, "etc", "conf.d"), 0o755); err != nil {
				t.Fatal(err)
			}
			for file, text := range map[string]string{"catena.yaml": text, "conf.d/a.yaml": "watchPlugins: true", "conf.d/README": ""} {
				if err := os.WriteFile(filepath.Join(dir, "etc", file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			open := filepath.Join(dir, c.open)
			if err := os.Chmod(open, c.mode); err != nil {
				t.Fatal(err)
			}
			_, err := Load(Options{Files: []string{filepath.Join(dir, "etc", "catena.yaml")}})
			want := strings.ReplaceAll(c.want, "FILE", open)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}
