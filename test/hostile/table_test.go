package hostile

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

var update = flag.Bool("update", false, "write the table of docs/security.md")

// rows are those of the table, from top to bottom: what the host prevents, then what the kernel does.
func rows() []string {
	var all []string
	for _, group := range []struct {
		attempts []attempt
		harms    []string
	}{{protocolAttempts, hostHarms}, {kernelAttempts, kernelHarms}} {
		for _, a := range group.attempts {
			all = append(all, a.name)
		}
		all = append(all, group.harms...)
	}
	return all
}

// byHost reports whether the host prevents it, however the stage is isolated.
func byHost(row string) bool {
	return slices.Contains(hostHarms, row) || slices.ContainsFunc(protocolAttempts, func(a attempt) bool { return a.name == row })
}

// table is what the stages got: by column, stage and row.
type table map[column]map[string]got

func (tb table) add(c column, stage string, what got) {
	if tb[c] == nil {
		tb[c] = map[string]got{}
	}
	tb[c][stage] = what
}

// cell is what the stages got, which is the same for all unless it says so.
func (tb table) cell(c column, row string) string {
	text := func(stage string) string {
		if got := tb[c][stage][row]; got != "" {
			return "**" + got + "**"
		}
		return "nothing"
	}
	cell := text(inGo)
	if _, ok := tb[c][inPython]; ok && text(inPython) != cell {
		cell += "; in Python " + text(inPython)
	}
	return cell
}

// marked is the table in the document.
var marked = regexp.MustCompile(`(?s)<!-- hostile: .*?-->\n(.*?)<!-- end -->`)

const document = "docs/security.md"

func (tb table) String() string {
	var b strings.Builder
	b.WriteString("| attempt |")
	for _, c := range columns() {
		fmt.Fprintf(&b, " %s |", c.title())
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(columns())) + "\n")
	for _, row := range rows() {
		b.WriteString("| " + row + " |")
		for _, c := range columns() {
			b.WriteString(" " + tb.cell(c, row) + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (c column) title() string {
	switch {
	case c.isolation == "off":
		return "`off`"
	case c.user:
		return "`" + c.isolation + "`, as a user"
	}
	return "`" + c.isolation + "`, as root"
}

// compare checks that the document has what the stages got in a column. Without isolation that
// depends on the machine too, and is only logged.
func (tb table) compare(t *testing.T, c column) {
	t.Helper()
	if *update {
		return
	}
	text, err := os.ReadFile(filepath.Join(cluster.Root(), document))
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string][]string{}
	if found := marked.FindSubmatch(text); found != nil {
		for line := range strings.Lines(string(found[1])) {
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
			documented[strings.TrimSpace(cells[0])] = cells[1:]
		}
	}
	report := t.Errorf
	if c.isolation == "off" {
		report = t.Logf
	}
	for _, row := range rows() {
		cells, want := documented[row], tb.cell(c, row)
		if i := slices.Index(columns(), c); i >= len(cells) || strings.TrimSpace(cells[i]) != want {
			report("%s has %q for %q, it is %s; run go test ./test/hostile -update as root", document, cells, row, want)
		}
	}
}

// write writes the table to the document.
func (tb table) write(t *testing.T) {
	t.Helper()
	if len(tb) < len(columns()) {
		t.Fatalf("%s is not written: only %d of %d columns were run", document, len(tb), len(columns()))
	}
	file := filepath.Join(cluster.Root(), document)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	section := "<!-- hostile: written by go test ./test/hostile -update, as root -->\n" + tb.String() + "<!-- end -->"
	if err := os.WriteFile(file, marked.ReplaceAllLiteral(text, []byte(section)), 0o644); err != nil {
		t.Fatal(err)
	}
}
