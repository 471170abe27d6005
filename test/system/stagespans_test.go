package system

import (
	"encoding/hex"
	"maps"
	"net/http"
	"strings"
	"testing"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// The trace of a request has a span for each stage that got it, which says what the stage
// has done: also one that calls, inside the call of another.
func TestSpansOfStages(t *testing.T) {
	t.Parallel()
	l := theLong(t)
	const parent = "00f067aa0ba902b7"
	for id, c := range map[string]struct {
		wrap, path string
		want       map[string]string
	}{
		"0af7651916cd43dd8448eb211c80319c": {"none", "/stage/behind", map[string]string{"front": "declined", "middle": "declined", "behind": "served"}},
		"1af7651916cd43dd8448eb211c80319c": {"front,middle", "/stage/behind", map[string]string{"front": "called", "middle": "called", "behind": "served"}},
		"2af7651916cd43dd8448eb211c80319c": {"middle", "/api/v1/namespaces/default", map[string]string{"front": "declined", "middle": "called", "core": "served"}},
	} {
		a := do(t, l.Config(cluster.Admin), http.MethodGet, c.path, "", wrapHeader+": "+c.wrap, "Traceparent: 00-"+id+"-"+parent+"-01")
		if a.code != http.StatusOK {
			t.Errorf("%s wrapped by %s: %d %.200s", c.path, c.wrap, a.code, a.body)
		}
		raw, _ := hex.DecodeString(id)
		root, _ := hex.DecodeString(parent)
		got := map[string]string{}
		eventually(t, "the collector has the spans of all stages, below the host's", func() bool {
			got = outcomes(l.spans.trace(raw), root)
			return len(got) == len(c.want)
		})
		if !maps.Equal(got, c.want) {
			t.Errorf("%s wrapped by %s: the outcomes are %v, want %v", c.path, c.wrap, got, c.want)
		}
	}
}

// outcomes are those of the stages that a trace has spans of: each has the stage that it
// is named after, is the host's, and begins before it ends.
func outcomes(spans []*tracev1.Span, root []byte) map[string]string {
	all := map[string]string{}
	for _, s := range spans {
		attributes := map[string]string{}
		for _, a := range s.GetAttributes() {
			attributes[a.GetKey()] = a.GetValue().GetStringValue()
		}
		stage, ok := strings.CutPrefix(s.GetName(), "stage ")
		if ok && attributes["catena.stage"] == stage && serversAbove(spans, s, root) == 1 && s.GetStartTimeUnixNano() < s.GetEndTimeUnixNano() {
			all[stage] = attributes["catena.outcome"]
		}
	}
	return all
}
