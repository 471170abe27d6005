package system

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"flag"
	"fmt"
	"html"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/catena-dev/catena/test/internal/cluster"
)

var pictures = flag.Bool("system.pictures", false, "write the picture of a trace in docs/images anew")

// One trace has a request on its whole way: the host, a stage that calls, core, and its requests to etcd, each inside of the one before.
func TestTraceOfARequest(t *testing.T) {
	t.Parallel()
	l := theLong(t)
	const id = "3af7651916cd43dd8448eb211c80319c"
	r := do(t, l.Config(cluster.Admin), http.MethodPost, "/api/v1/namespaces/default/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"traced-"}}`,
		wrapHeader+": middle", "Traceparent: 00-"+id+"-00f067aa0ba902b7-01")
	if r.code != http.StatusCreated {
		t.Fatalf("%d %s", r.code, r.body)
	}
	raw, _ := hex.DecodeString(id)
	var rows []traceRow
	eventually(t, "the collector has the whole trace", func() bool {
		rows = traceRows(l.spans.trace(raw))
		return !slices.ContainsFunc([]string{"stage middle", "stage core", "Create etcd3"}, func(name string) bool { return depthOf(rows, name) < 0 })
	}, func() string { return fmt.Sprint(rows) })
	if depthOf(rows, "Create etcd3") <= depthOf(rows, "stage core") {
		t.Errorf("what core asks etcd for is not below core: %v", rows)
	}
	if *pictures {
		if err := os.WriteFile(filepath.Join(cluster.Root(), "docs", "images", "trace.svg"), drawTrace(rows), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// traceRow is a span of a trace, and how many are around it.
type traceRow struct {
	name, outcome string
	depth         int
	begin, end    uint64
}

func depthOf(rows []traceRow, name string) int {
	for _, r := range rows {
		if strings.HasPrefix(r.name, name) {
			return r.depth
		}
	}
	return -1
}

// traceRows are spans in the order of their tree, those that begin first before others.
func traceRows(spans []*tracev1.Span) []traceRow {
	slices.SortFunc(spans, func(a, b *tracev1.Span) int { return cmp.Compare(a.GetStartTimeUnixNano(), b.GetStartTimeUnixNano()) })
	known := map[string]bool{}
	for _, s := range spans {
		known[string(s.GetSpanId())] = true
	}
	var rows []traceRow
	var add func(parent string, depth int)
	add = func(parent string, depth int) {
		for _, s := range spans {
			if above := string(s.GetParentSpanId()); above != parent && !(depth == 0 && !known[above]) {
				continue
			}
			r := traceRow{name: s.GetName(), depth: depth, begin: s.GetStartTimeUnixNano(), end: s.GetEndTimeUnixNano()}
			for _, a := range s.GetAttributes() {
				if a.GetKey() == "catena.outcome" {
					r.outcome = a.GetValue().GetStringValue()
				}
			}
			rows = append(rows, r)
			add(string(s.GetSpanId()), depth+1)
		}
	}
	add("", 0)
	return rows
}

// drawTrace draws the spans as bars below each other.
func drawTrace(rows []traceRow) []byte {
	const width, labels, height = 900, 380, 20
	begin, end := rows[0].begin, rows[0].end
	for _, r := range rows {
		begin, end = min(begin, r.begin), max(end, r.end)
	}
	at := func(ns uint64) float64 { return labels + float64(ns-begin)/float64(end-begin)*(width-labels-70) }
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="The spans of one request">
<style>text{fill:#1d2321}.bar{fill:#2f7a5b}.stage{fill:#8a5a00}.line{stroke:#c9d0cc}@media(prefers-color-scheme:dark){text{fill:#e4e9e6}.bar{fill:#6fd3a4}.stage{fill:#f0b955}.line{stroke:#3b4541}}</style>
`, width, height*len(rows)+10)
	for i, r := range rows {
		y := height*i + 5
		label, class := r.name, "bar"
		if r.outcome != "" {
			label, class = label+": "+r.outcome, "stage"
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text><rect class="%s" x="%.1f" y="%d" width="%.1f" height="12" rx="2"/><text x="%.1f" y="%d">%s</text>`+"\n",
			8+14*r.depth, y+11, html.EscapeString(label), class, at(r.begin), y+1, max(1, at(r.end)-at(r.begin)), at(r.end)+5, y+11,
			time.Duration(r.end-r.begin).Round(10*time.Microsecond))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
