package stagev1

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docs/protocol-reference.md says what stage.proto says.
func TestReference(t *testing.T) {
	text, err := os.ReadFile("stage.proto")
	if err != nil {
		t.Fatal(err)
	}
	want := reference(string(text))
	file := filepath.Join("..", "..", "docs", "protocol-reference.md")
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil || string(got) != want {
		t.Errorf("docs/protocol-reference.md is not what stage.proto says (%v); run go test ./sdk/stagev1 -update", err)
	}
}

var (
	rpcLine   = regexp.MustCompile(`^rpc (\w+)\((\w+)\) returns \((stream )?(\w+)\);$`)
	blockLine = regexp.MustCompile(`^(message|enum|service) (\w+) \{(\})?$`)
	fieldLine = regexp.MustCompile(`^(repeated )?([\w.]+) (\w+) = (\d+);$`)
	valueLine = regexp.MustCompile(`^([A-Z_]+) = (\d+);$`)
)

// reference makes tables of a proto file in the style of stage.proto: one declaration
// to a line, comments above it.
func reference(proto string) string {
	var b strings.Builder
	b.WriteString("# Reference of the control protocol\n\nMade from [stage.proto](../sdk/stagev1/stage.proto) by `go test ./sdk/stagev1 -update`.\n" +
		"[protocol.md](protocol.md) says when the host calls what, and what else a stage does.\n")
	var comment []string
	var open []*strings.Builder // blocks that have not ended, the outermost first
	nested := ""                // blocks that have ended within one that has not
	_, body, _ := strings.Cut(proto, "option go_package")
	for line := range strings.Lines(body) {
		line = strings.TrimSpace(line)
		if text, ok := strings.CutPrefix(line, "//"); ok {
			comment = append(comment, strings.TrimSpace(text))
			continue
		}
		if blockLine.MatchString(line) {
			open = append(open, &strings.Builder{})
		}
		if len(open) > 0 {
			declare(open[len(open)-1], line, strings.Join(comment, " "))
		}
		if last := len(open) - 1; strings.HasSuffix(line, "}") && last >= 0 {
			nested = open[last].String() + nested
			if open = open[:last]; last == 0 {
				b.WriteString(nested)
				nested = ""
			}
		}
		comment = nil
	}
	return b.String()
}

func declare(b *strings.Builder, line, comment string) {
	said := ""
	if comment != "" {
		said = ": " + comment
	}
	if m := blockLine.FindStringSubmatch(line); m != nil {
		fmt.Fprintf(b, "\n## %s %s\n", m[1], m[2])
		if comment != "" {
			fmt.Fprintf(b, "\n%s\n", comment)
		}
		switch {
		case m[3] != "":
			b.WriteString("\nIt is empty.\n")
		default:
			b.WriteString("\n")
		}
	} else if m := rpcLine.FindStringSubmatch(line); m != nil {
		fmt.Fprintf(b, "- `%s(%s)` returns %s`%s`%s\n", m[1], m[2], m[3], m[4], said)
	} else if m := fieldLine.FindStringSubmatch(line); m != nil {
		fmt.Fprintf(b, "- `%s = %s` %s`%s`%s\n", m[3], m[4], m[1], m[2], said)
	} else if m := valueLine.FindStringSubmatch(line); m != nil {
		fmt.Fprintf(b, "- `%s = %s`%s\n", m[1], m[2], said)
	}
}
