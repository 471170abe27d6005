package config

import (
	"slices"
	"strings"
)

// flagLayers returns a layer for each flag, in order.
func flagLayers(flags []CommandFlag) []*layer {
	layers := make([]*layer, len(flags))
	for i, f := range flags {
		layers[i] = textLayer(f.Name, undotted(f.Key), f.Value)
	}
	return layers
}

// setLayers returns a layer for each KEY=VALUE, in order.
func setLayers(set []string, p *problems) []*layer {
	var layers []*layer
	for _, kv := range set {
		key, value, ok := strings.Cut(kv, "=")
		l := &layer{source: "--set " + key}
		path := undotted(key)
		switch {
		case !ok:
			p.add(l, nil, "want KEY=VALUE")
		case slices.Contains(path, ""):
			p.add(l, nil, "a key has no empty part")
		default:
			layers = append(layers, textLayer(l.source, path, value))
		}
	}
	return layers
}
