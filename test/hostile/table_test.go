package hostile

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
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

// machineRows are those of the table of machines: what the kernel prevents in one request, and what is left.
func machineRows() []string {
	var all []string
	for _, a := range kernelAttempts {
		all = append(all, a.name)
	}
	return append(all, outliving)
}

// table is what the stages got: by column, stage and row.
type table struct {
	columns []column
	rows    []string

	mu  sync.Mutex
	got map[column]map[string]got
}

// newTable returns a table that is written to the document when the test ends, if that is to be.
func newTable(t *testing.T, columns []column, rows []string) *table {
	tb := &table{columns: columns, rows: rows, got: map[column]map[string]got{}}
	t.Cleanup(func() {
		if *update {
			tb.write(t)
		}
	})
	return tb
}

func (tb *table) add(c column, stage string, what got) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	if tb.got[c] == nil {
		tb.got[c] = map[string]got{}
	}
	tb.got[c][stage] = what
}

// cell is what the stages got, which is the same for all unless it says so.
func (tb *table) cell(c column, row string) string {
	text := func(stage string) string {
		if got := tb.got[c][stage][row]; got != "" {
			return "**" + got + "**"
		}
		return nothing
	}
	cell := text(inGo)
	if _, ok := tb.got[c][inPython]; ok && text(inPython) != cell {
		cell += "; in Python " + text(inPython)
	}
	return cell
}

const (
	document = "docs/security.md"
	nothing  = "nothing"
	// inNone begins the line that has the attempts that got nothing in any column.
	inNone = "Nothing in any column: "
)

// marked is the table in the document: the first column tells which.
func (tb *table) marked() *regexp.Regexp {
	return regexp.MustCompile(`(?s)(<!-- hostile ` + tb.columns[0].String() + `: .*?-->\n)(.*?)(<!-- end -->)`)
}

// String is the table. Its last columns are a line instead if nothing was got in any of them.
func (tb *table) String() string {
	var b strings.Builder
	gotAny := func(columns []column, row string) bool {
		return slices.ContainsFunc(columns, func(c column) bool { return tb.cell(c, row) != nothing })
	}
	n := len(tb.columns)
	for n > 1 && !slices.ContainsFunc(tb.rows, func(row string) bool { return gotAny(tb.columns[n-1:], row) }) {
		n--
	}
	b.WriteString("| attempt |")
	for _, c := range tb.columns[:n] {
		fmt.Fprintf(&b, " %s |", c.title())
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", n) + "\n")
	var none []string
	for _, row := range tb.rows {
		if !gotAny(tb.columns, row) {
			none = append(none, row)
			continue
		}
		b.WriteString("| " + row + " |")
		for _, c := range tb.columns[:n] {
			b.WriteString(" " + tb.cell(c, row) + " |")
		}
		b.WriteString("\n")
	}
	if n < len(tb.columns) {
		var titles []string
		for _, c := range tb.columns[n:] {
			titles = append(titles, c.title())
		}
		b.WriteString("\nNothing of this with: " + strings.Join(titles, "; ") + ".\n")
	}
	if len(none) > 0 {
		b.WriteString("\n" + inNone + strings.Join(none, "; ") + ".\n")
	}
	return b.String()
}

func (c column) title() string {
	by := ", as root"
	if c.user {
		by = ", as a user"
	}
	switch {
	case c.machine != whole:
		return c.machine.title() + by
	case c.isolation == "off":
		return "`off`"
	}
	return "`" + c.isolation + "`" + by
}

// compare checks that the document has what the stages got in a column. Without isolation that
// depends on the machine too, and is only logged.
func (tb *table) compare(t *testing.T, c column) {
	t.Helper()
	if *update {
		return
	}
	text, err := os.ReadFile(filepath.Join(cluster.Root(), document))
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string][]string{}
	if found := tb.marked().FindSubmatch(text); found != nil {
		for line := range strings.Lines(string(found[2])) {
			if none, ok := strings.CutPrefix(line, inNone); ok {
				for row := range strings.SplitSeq(strings.TrimRight(none, ".\n"), "; ") {
					documented[row] = slices.Repeat([]string{nothing}, len(tb.columns))
				}
				continue
			}
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
			row := append(cells[1:], slices.Repeat([]string{nothing}, len(tb.columns))...)
			documented[strings.TrimSpace(cells[0])] = row[:len(tb.columns)]
		}
	}
	report := t.Errorf
	if c.isolation == "off" {
		report = t.Logf
	}
	for _, row := range tb.rows {
		cells, want := documented[row], tb.cell(c, row)
		if i := slices.Index(tb.columns, c); i >= len(cells) || strings.TrimSpace(cells[i]) != want {
			report("%s has %q for %q, it is %s; run go test ./test/hostile -update as root", document, cells, row, want)
		}
	}
}

// write writes the table to the document.
func (tb *table) write(t *testing.T) {
	t.Helper()
	if len(tb.got) < len(tb.columns) {
		t.Fatalf("%s is not written: only %d of %d columns were run", document, len(tb.got), len(tb.columns))
	}
	file := filepath.Join(cluster.Root(), document)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	written := tb.marked().ReplaceAll(text, []byte("${1}"+tb.String()+"${3}"))
	if err := os.WriteFile(file, written, 0o644); err != nil {
		t.Fatal(err)
	}
}
