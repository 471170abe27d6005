package metrics

import (
	"bytes"
	"fmt"

	"github.com/catena-dev/catena/host/internal/bounds"
)

// boundedText takes metrics as text within bounds, before anything is made of it: a series of a few bytes takes some hundred in memory.
type boundedText struct {
	text   bytes.Buffer
	bounds bounds.Metrics

	samples, comments, labels int
	// line says what the text since the latest line end is.
	line lineKind
}

type lineKind int

const (
	emptyLine lineKind = iota
	comment
	series
)

func (t *boundedText) Write(p []byte) (int, error) {
	if t.text.Len()+len(p) > t.bounds.Bytes {
		return 0, fmt.Errorf("more than %d bytes, which are the most that the stage can have", t.bounds.Bytes)
	}
	for _, c := range p {
		t.count(c)
	}
	for _, counted := range []struct {
		what    string
		n, most int
	}{{"series", t.samples, t.bounds.Samples}, {"lines of comments", t.comments, t.bounds.Comments},
		{"labels", t.labels, t.bounds.Labels}} {
		if counted.n > counted.most {
			return 0, fmt.Errorf("more than %d %s, which are the most that the stage can have", counted.most, counted.what)
		}
	}
	return t.text.Write(p)
}

func (t *boundedText) count(c byte) {
	switch {
	case c == '\n':
		t.line = emptyLine
	case t.line == emptyLine && c == '#':
		t.line = comment
		t.comments++
	case t.line == emptyLine && c != ' ' && c != '\t' && c != '\r':
		t.line = series
		t.samples++
	case t.line == series && c == '=': // those in values of labels count too: there are more than enough
		t.labels++
	}
}
