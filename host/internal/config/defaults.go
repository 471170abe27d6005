package config

import (
	"bytes"
	_ "embed"
	"maps"
	"slices"
	"strings"
)

// defaultSource is the source of values that no layer gives.
const defaultSource = "default"

// The sources of the values of the files that ship with the host.
const (
	shippedSource    = "catena:shipped.yaml"
	kubernetesSource = "catena:kubeapiserver.yaml"
	chainSource      = "catena:chain.yaml"
)

//go:embed shipped.yaml
var shippedYAML []byte

//go:embed kubeapiserver.yaml
var kubernetesYAML []byte

//go:embed chain.yaml
var chainYAML []byte

//go:embed init.yaml
var initYAML []byte

// Initial returns a configuration file to begin with: directories, the chain of Kubernetes' stages, and the
// defaults of what is used most as comments. It is what holds without a configuration or, if installed, what packages install.
func Initial(installed bool) []byte {
	if installed {
		return bytes.Clone(initYAML)
	}
	text := string(initYAML)
	for _, change := range [][2]string{
		{"dataDir: /var/lib/catena", "dataDir: ./data"},
		{"# Unix sockets. Its path has to be short.\nruntimeDir: /run/catena\n", ""},
		{"[/usr/lib/catena/plugins, /usr/local/lib/catena/plugins]", "[./plugins]"},
		{"  aggregator:\n", "  # Kubernetes' own come with this program.\n  aggregator:\n    binary: builtin\n"},
		{"  core:\n", "  core:\n    binary: builtin\n"},
		{"  extensions:\n", "  extensions:\n    binary: builtin\n"},
		{"  controllers: {}\n", "  controllers:\n    binary: builtin\n"},
	} {
		text = strings.Replace(text, change[0], change[1], 1)
	}
	return []byte(text)
}

// shipped returns the layer of the configuration that ships with the host, for what the merged
// layers leave open. It has settings of stages by name, and declares none.
func shipped(m *merger) *layer {
	l := &layer{source: shippedSource, builtin: true, values: map[string]any{}}
	all := m.parse(shippedSource, shippedYAML)
	for stage := range m.values("stages") {
		l.fillAll(m, []string{"stages", stage}, asMap(all.values["stages"])[stage])
	}
	l.lines = all.lines
	return l
}

// kubernetes returns the layer of what holds with the defaults of kube-apiserver, for what the
// merged layers leave open.
func kubernetes(m *merger) *layer {
	l := &layer{source: kubernetesSource, builtin: true, values: map[string]any{}}
	if m.ko.String("apiserverDefaults") == KubernetesDefaults {
		all := m.parse(kubernetesSource, kubernetesYAML)
		l.fillAll(m, nil, all.values)
		l.lines = all.lines
	}
	return l
}

// chainOf returns the layer of the chain where nothing declares another, for what the merged layers leave open.
func chainOf(declared bool) func(*merger) *layer {
	return func(m *merger) *layer {
		l := &layer{source: chainSource, builtin: true, values: map[string]any{}}
		ofKubernetes := m.ko.String("apiserverDefaults") == KubernetesDefaults // has a chain of its own
		if !declared && !ofKubernetes && !m.problems.incomplete {
			all := m.parse(chainSource, chainYAML)
			l.fillAll(m, nil, all.values)
			l.lines = all.lines
		}
		return l
	}
}

// Core has the built-in resources of Kubernetes, and Controllers are the clients of it that come with Catena.
const (
	Core        = "core"
	Controllers = "controllers"
)

// BuiltinStages are those that make the chain where nothing declares another, sorted.
func BuiltinStages() []string {
	return slices.Sorted(maps.Keys(asMap(parseLayer(chainSource, chainYAML, &problems{}).values["stages"])))
}

// declaresChain reports whether the layers declare a chain. They do not if they say nothing of stages, or only of others that delegate to
// one of Kubernetes'. Flags that only set keys of those change that chain.
func declaresChain(files, flags []*layer) bool {
	builtin, others, hung := BuiltinStages(), false, false
	for i, l := range slices.Concat(files, flags) {
		stages, mentioned := l.values["stages"]
		others = others || mentioned && stages == nil
		for name, stage := range asMap(stages) {
			ours := slices.Contains(builtin, name)
			if ours && (i < len(files) || len(asMap(stage)) == 0) {
				return true
			}
			delegate, _ := asMap(stage)["delegate"].(string)
			others, hung = others || !ours, hung || slices.Contains(builtin, delegate)
		}
	}
	return others && !hung
}

// parse returns a layer that ships with the host.
func (m *merger) parse(source string, text []byte) *layer {
	l := parseLayer(source, text, m.problems)
	normalize(l, m.root, m.problems)
	return l
}

// lockOff is the value of lock with which a stage needs none.
const lockOff = "off"

// locks returns the values of lock by stage: what shipped.yaml has, and what is declared.
func locksOf(c *Config) map[string]string {
	locks := map[string]string{}
	ships := parseLayer(shippedSource, shippedYAML, &problems{})
	for name, stage := range asMap(ships.values["stages"]) {
		locks[name], _ = asMap(stage)["lock"].(string)
	}
	for name, stage := range c.Stages {
		locks[name] = stage.Lock
	}
	return locks
}

// fillAll fills in all values at and below path.
func (l *layer) fillAll(m *merger, path []string, v any) {
	section := asMap(v)
	if section == nil && v != nil {
		l.fill(m, path, v)
	}
	for name, v := range section {
		l.fillAll(m, join(path, name), v)
	}
}

// defaults returns the layer of the defaults of keys for what the merged layers leave open.
func defaults(m *merger) *layer {
	l := &layer{source: defaultSource, builtin: true, values: map[string]any{}}
	for _, k := range Keys() {
		if k.Default != nil && !strings.Contains(k.Path, "*") {
			l.fill(m, strings.Split(k.Path, "."), k.Default)
		}
	}
	for stage := range m.values("stages") {
		for _, k := range stageKeys() {
			rest, ok := strings.CutPrefix(k.Path, "stages.*.")
			if ok && k.Default != nil {
				l.fill(m, append([]string{"stages", stage}, strings.Split(rest, ".")...), k.Default)
			}
		}
		l.fill(m, []string{"stages", stage, "identity", "user"}, "system:catena:stage:"+stage)
	}
	return l
}

// fill sets the value at path unless a layer of m has one.
func (l *layer) fill(m *merger, path []string, v any) {
	if m.origins[dotted(path)] != nil {
		return
	}
	at := l.values
	for _, name := range path[:len(path)-1] {
		next, ok := at[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			at[name] = next
		}
		at = next
	}
	at[path[len(path)-1]] = v
}
