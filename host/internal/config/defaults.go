package config

import "strings"

// defaultSource is the source of values that no layer gives.
const defaultSource = "default"

// defaults returns the layer of the defaults for what the merged layers leave open.
func defaults(m *merger) *layer {
	l := &layer{source: defaultSource, values: map[string]any{}}
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
		user, groups := defaultIdentity(stage)
		l.fill(m, []string{"stages", stage, "identity", "user"}, user)
		l.fill(m, []string{"stages", stage, "identity", "groups"}, groups)
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

// defaultIdentity returns the user and the groups of a stage's own calls. The
// stages that kube-apiserver is made of have the identity that it has for itself.
func defaultIdentity(stage string) (user string, groups []string) {
	switch stage {
	case "aggregator", "core", "extensions":
		return "system:apiserver", []string{"system:masters"}
	}
	return "system:catena:stage:" + stage, []string{"system:catena:stages"}
}
