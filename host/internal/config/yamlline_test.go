package config

import (
	"strings"
	"testing"
)

// Errors of YAML have the line that an editor shows.
func TestLinesOfYAMLErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text string
		line int
	}{
		{"a: 1\nb:\n  c: 1\n d: 2\n", 4},
		{"a: 1\nb: 2\n c: 3\n", 3},
		{"a: 1\nb: [1, 2\n", 2},
		{"a: 1\nb: [1, 2\nc: 3\nd: 4\n", 3},
		{"a: 1\nb: {x: 1\n\nc: 3\n", 4},
		{"a: 1\nb\nc: 3\n", 2},
		{"a: 1\nb: x: 3\n", 2},
		{"a: 1\n\tb: 3\n", 2},
		{"a:\n  - 1\n  b: 2\n", 3},
		{"x: 1\na:\n  - 1\n b: 2\n", 4},
		{"a: 1\nb: @x\n", 2},
		{"a: 1\nb: !foo!x y\n", 2},
		{"a: 1\nb: 'x\n", 2},
		{"a: 1\nb:\n  c: *x\n", 3},
		{"a: 1\n\nstages:\n  core:\n    delegate: x\n   binary: y\n", 6},
		{"a: 1\nb: \x01\n", 2},
		{"a: 1\nb: \xff\n", 2},
		{"a: 1\n- b\n", 2},
		{"stages: {core: {}\n", 1},
		{"a: 1\nb: 2\na: 3\n", 3},
	} {
		p := &problems{}
		parseLayer("f.yaml", []byte(tc.text), p)
		if len(p.list) != 1 || p.list[0].Line != tc.line || strings.Contains(p.list[0].Message, "line ") && !strings.Contains(p.list[0].Message, "set a second time") {
			t.Errorf("%q: %v, want line %d", tc.text, p.err(), tc.line)
		}
	}
}
