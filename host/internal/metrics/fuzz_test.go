package metrics

import (
	"bytes"
	"io"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/proto"
)

// Whatever a stage writes, the host's own series stay as they are, every other one has
// the stage's label, none is there twice, and a client can read the whole.
func FuzzText(f *testing.F) {
	for _, seed := range []string{
		"", "a 1\n", "a{stage=\"core\"} 1\n", "a{stage=\"x\",exported_stage=\"y\"} 1 1700000000000\n",
		"# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n",
		"# TYPE s summary\ns{quantile=\"0.5\"} NaN\ns_sum -Inf\ns_count 0\n",
		"# HELP requests_total x\n# TYPE requests_total counter\nrequests_total 1\nrequests_total 2\n",
		"# HELP a \xff\n# TYPE a gauge\na 1\n", "a{b=\"\xff\"} 1\n", "{\"\xff\"} 1\n", "a{\"\xff\"=\"b\"} 1\n",
		"catena_relay_hops_total{stage=\"core\"} 9\n", "{\"quoted name\", l=\"ü\"} 1\n", "a{b=\"\\\"\\\\\\n\"} 1\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		families, err := newGatherer(io.Discard, text("bad", s)).Gather()
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		for _, family := range families {
			checkFamily(t, family)
			if _, err := proto.Marshal(family); err != nil {
				t.Fatalf("%s: %v", family.GetName(), err)
			}
			if _, err := expfmt.MetricFamilyToText(&out, family); err != nil {
				t.Fatalf("%s: %v", family.GetName(), err)
			}
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		if _, err := parser.TextToMetricFamilies(&out); err != nil {
			t.Fatalf("cannot be read: %v", err)
		}
	})
}

func checkFamily(t *testing.T, family *dto.MetricFamily) {
	t.Helper()
	seen := map[string]bool{}
	for _, metric := range family.GetMetric() {
		stage := ""
		for _, l := range metric.GetLabel() {
			if l.GetName() == stageLabel {
				stage = l.GetValue()
			}
		}
		own := family.GetName() == "requests_total" && len(metric.GetLabel()) == 0 ||
			family.GetName() == "catena_relay_hops_total" && stage == "core" && metric.GetCounter().GetValue() == 1
		if stage != "bad" && !own {
			t.Errorf("%s has %v", family.GetName(), metric)
		}
		if key := keyOf(metric); seen[key] {
			t.Errorf("%s has %s twice", family.GetName(), key)
		} else {
			seen[key] = true
		}
	}
}
