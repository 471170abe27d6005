package config

import (
	"bytes"
	_ "embed"
	"strings"
)

// defaultSource is the source of values that no layer gives.
const defaultSource = "default"

// The sources of the values of the files that ship with the host.
const (
	shippedSource    = "catena:shipped.yaml"
	kubernetesSource = "catena:kubeapiserver.yaml"
)

//go:embed shipped.yaml
var shippedYAML []byte

//go:embed kubeapiserver.yaml
var kubernetesYAML []byte

//go:embed init.yaml
var initYAML []byte

// Initial returns a configuration file to begin with: directories, the chain of Kubernetes' stages, and the
// defaults of what is used most as comments.
func Initial() []byte { return bytes.Clone(initYAML) }

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
