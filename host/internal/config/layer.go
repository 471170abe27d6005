package config

// layer is one source of values.
type layer struct {
	// source is the path of a file, "env NAME", "--set KEY", "--FLAG", shippedSource or
	// defaultSource.
	source string
	// builtin is set if the operator has not written the layer.
	builtin bool
	// values are the parser's until normalize has checked them.
	values map[string]any
	// text is set if the values are strings that are still to be read according to the
	// type of their key, as those of flags and of the environment are.
	text bool
	// lines are the lines of dotted keys in a file, if they are known.
	lines map[string]int
	// empty are the dotted keys of a file without a value: nothing has been written behind them, not even null.
	empty map[string]bool
	// complete is set if the source has to name apiVersion and kind.
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
