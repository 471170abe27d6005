package schema

import (
	"fmt"
	"regexp/syntax"

	"github.com/catena-dev/catena/host/internal/bounds"
)

// checkBounds refuses a schema that is too long, or too deep, without parsing it.
func checkBounds(text string) error {
	if len(text) > bounds.Schema {
		return fmt.Errorf("it has %d bytes; a stage's can have %d", len(text), bounds.Schema)
	}
	depth, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > bounds.SchemaDepth {
				return fmt.Errorf("it has more than %d levels", bounds.SchemaDepth)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// checkPatterns refuses regular expressions that take much to compile: a few bytes can stand for thousands of states.
func checkPatterns(plain any) error {
	states := 0
	var visit func(any) error
	visit = func(value any) error {
		switch value := value.(type) {
		case []any:
			for _, member := range value {
				if err := visit(member); err != nil {
					return err
				}
			}
		case map[string]any:
			patterns, _ := value["patternProperties"].(map[string]any)
			for pattern := range patterns {
				states += statesOf(pattern)
			}
			if pattern, ok := value["pattern"].(string); ok {
				states += statesOf(pattern)
			}
			if states > bounds.SchemaStates {
				return fmt.Errorf("its patterns are too large: they have more than %d states", bounds.SchemaStates)
			}
			for _, member := range value {
				if err := visit(member); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return visit(plain)
}

// longPattern is the length of a regular expression that takes much to parse.
const longPattern = 4 << 10

// statesOf is how many states a regular expression has, about. One that cannot be parsed has few: it is an error later.
func statesOf(pattern string) int {
	if len(pattern) > longPattern {
		return bounds.SchemaStates + 1
	}
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return len(pattern)
	}
	var count func(re *syntax.Regexp) int
	count = func(re *syntax.Regexp) int {
		n := 1 + len(re.Rune)
		for _, sub := range re.Sub {
			n += count(sub)
		}
		if re.Op == syntax.OpRepeat {
			n *= max(re.Min, re.Max, 1)
		}
		return min(n, bounds.SchemaStates+1)
	}
	return max(len(pattern), count(re))
}
