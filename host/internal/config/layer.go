package config

// layer is one source of values.
type layer struct {
	// source is the path of a file, "env NAME", "--set KEY", "--FLAG" or "default".
	source string
	// values are as the parser made them until normalize has checked them.
	values map[string]any
	// text says that the values are strings still to be read according to the type
	// of their key, as those of flags and of the environment are.
	text bool
	// lines are where dotted keys stand in a file, if that is known.
	lines map[string]int
	// complete says that the source has to name apiVersion and kind.
	complete bool
}

// line returns the line of path, or of the nearest section around it that is known.
func (l *layer) line(path []string) int {
	for n := len(path); n > 0; n-- {
		if line := l.lines[dotted(path[:n])]; line > 0 {
			return line
		}
	}
	return 0
}

// textLayer is a layer of one value. The path is not empty.
func textLayer(source string, path []string, value string) *layer {
	values := map[string]any{}
	at := values
	for _, name := range path[:len(path)-1] {
		next := map[string]any{}
		at[name] = next
		at = next
	}
	at[path[len(path)-1]] = value
	return &layer{source: source, values: values, text: true}
}
