package system

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// occasional are families that a server has once something has happened to it that need not happen.
var occasional = map[string]string{
	"rest_client_request_retries_total":                       "a client of the server had to repeat a request",
	"rest_client_transport_cache_gc_calls_total":              "the garbage collector has come to a client's transport",
	"apiserver_request_post_timeout_total":                    "a request was still with its handler when its time was up",
	"informer_queued_items":                                   "an informer had items in its queue",
	"node_collector_update_node_health_duration_seconds":      "the program has the node controller, whose package registers it; empty but in the stage controllers",
	"node_collector_update_all_nodes_health_duration_seconds": "as the one before",
}

// own are families of Catena whose names do not say so: kube-apiserver's /metrics is 500 where Catena's leaves
// something out, and counts that.
var own = []string{"promhttp_metric_handler_errors_total"}

// counted are the families whose series the session's requests cause, in the way of kube-apiserver: once for each request.
var counted = []string{
	"apiserver_request_total", "apiserver_request_duration_seconds", "apiserver_request_sli_duration_seconds", "apiserver_response_sizes",
	"apiserver_request_aborts_total", "apiserver_request_terminations_total", "apiserver_request_post_timeout_total",
	"apiserver_admission_webhook_request_total", "apiserver_admission_webhook_admission_duration_seconds", "apiserver_admission_webhook_fail_open_count",
	"apiserver_admission_webhook_rejection_count", "apiserver_audit_requests_rejected_total", "apiserver_audit_error_total",
	"apiserver_requested_deprecated_apis", "pod_security_evaluations_total", "serviceaccount_authentication_pod_node_ref_verified_total",
	"kubernetes_feature_enabled", "kubernetes_healthcheck", "apiserver_flowcontrol_nominal_limit_seats", "apiserver_tls_handshake_errors_total",
}

// Catena has all families of kube-apiserver's metrics after the same work, with their types and labels, and of what that work causes
// the same counts.
func TestMetricFamilies(t *testing.T) {
	t.Parallel()
	logs := map[string]string{}
	b := startBeside(t, func(name, dir string) map[string]string {
		logs[name] = filepath.Join(dir, "audit.log")
		policy := strings.Replace(sessionPolicy, "rules:\n", ownWatchesRule, 1)
		return map[string]string{"audit-policy-file": write(t, "policy.yaml", policy), "audit-log-path": logs[name]}
	})
	prepareSession(t, b)
	before, ownBefore := map[string]map[string]*dto.MetricFamily{}, map[string]int{}
	for name, s := range b.both() {
		before[name], ownBefore[name] = familiesOf(t, s.Config(cluster.Admin), "/metrics"), ownWatches(t, logs[name])
	}
	countsOf := func(name string) map[string]float64 {
		after := familiesOf(t, b.both()[name].Config(cluster.Admin), "/metrics")
		return counts(after, before[name], ownWatches(t, logs[name])-ownBefore[name])
	}
	t.Run("session", func(t *testing.T) {
		for name, s := range b.both() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				for _, step := range session() {
					step.send(t, s, "")
				}
			})
		}
	})
	for _, path := range []string{"/metrics", "/metrics/slis"} {
		var want, got map[string]*dto.MetricFamily
		missing := func() (names []string) {
			for name := range want {
				if got[name] == nil && occasional[name] == "" {
					names = append(names, name)
				}
			}
			return names
		}
		eventually(t, "Catena has all families of "+path, func() bool {
			want, got = familiesOf(t, b.reference.Config(cluster.Admin), path), familiesOf(t, b.catena.Config(cluster.Admin), path)
			return len(missing()) == 0
		}, func() string { return fmt.Sprint("missing: ", missing()) })
		compareFamilies(t, path, want, got)
	}
	var want, got map[string]float64
	eventually(t, "the counts are kube-apiserver's", func() bool {
		want, got = countsOf("kube-apiserver"), countsOf("catena")
		return maps.Equal(want, got)
	}, func() string { return "Catena's counts (+) are not kube-apiserver's (-):\n" + cmp.Diff(want, got) })
	if len(want) < 100 {
		t.Errorf("only %d series are compared", len(want))
	}
}

// compareFamilies compares types, texts and names of labels, but for the label of the stage.
func compareFamilies(t *testing.T, path string, want, got map[string]*dto.MetricFamily) {
	t.Helper()
	for name, g := range got {
		w := want[name]
		switch {
		case w == nil && occasional[name] == "" && !strings.HasPrefix(name, "catena_") && !slices.Contains(own, name):
			t.Errorf("%s: kube-apiserver has no %s", path, name)
		case w == nil:
		case w.GetType() != g.GetType() || w.GetHelp() != g.GetHelp():
			t.Errorf("%s: %s is a %s, %q, want a %s, %q", path, name, g.GetType(), g.GetHelp(), w.GetType(), w.GetHelp())
		case !slices.Equal(labelNames(w), labelNames(g)):
			t.Errorf("%s: %s has the labels %q, want %q", path, name, labelNames(g), labelNames(w))
		}
	}
}

// ofStage reports whether a label is the host's for the stage that a series comes from.
func ofStage(family string, l *dto.LabelPair) bool {
	own := family == "apiserver_watch_events_dispatch_duration_seconds" || family == "kubernetes_feature_enabled"
	return l.GetName() == "catena_stage" || l.GetName() == "stage" && !own
}

func labelNames(f *dto.MetricFamily) []string {
	names := map[string]bool{}
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			if !ofStage(f.GetName(), l) {
				names[l.GetName()] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// ownWatchesRule has the ends of the watches of ConfigMaps by the server itself in the audit log. Its controller of the
// authentication of a cluster watches those of kube-system, each time for 5 to 10 minutes, by chance.
const ownWatchesRule = `rules:
- {level: Metadata, users: ["system:apiserver"], verbs: [watch], resources: [{group: "", resources: [configmaps]}],
   namespaces: [kube-system], omitStages: [RequestReceived, ResponseStarted]}
`

// ownWatches is how many of ownWatchesRule an audit log has.
func ownWatches(t *testing.T, log string) int {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		var e event
		if json.Unmarshal([]byte(line), &e) == nil && e.Verb == "watch" && e.User.Username == "system:apiserver" {
			n++
		}
	}
	return n
}

// counts are by how much the counters of counted have grown, and the values of its gauges, added up over the stages.
// Those that the servers' own requests are in are left out, and their own watches are taken away.
func counts(after, before map[string]*dto.MetricFamily, ownWatches int) map[string]float64 {
	all := map[string]float64{}
	add := func(families map[string]*dto.MetricFamily, sign float64) {
		for _, name := range counted {
			for _, m := range families[name].GetMetric() {
				labels := map[string]string{}
				for _, l := range m.GetLabel() {
					if !ofStage(name, l) {
						labels[l.GetName()] = l.GetValue()
					}
				}
				if !ownRequest(labels) {
					all[fmt.Sprint(name, labels)] += sign * (m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount()))
					if sign > 0 {
						all[fmt.Sprint(name, labels)] += m.GetGauge().GetValue()
					}
				}
			}
		}
	}
	add(after, 1)
	add(before, -1)
	for key := range all {
		succeeded := !strings.Contains(key, "map[code:") || strings.Contains(key, "map[code:200 ")
		if succeeded && strings.Contains(key, "resource:configmaps scope:namespace subresource: verb:WATCH ") {
			all[key] -= float64(ownWatches)
		}
	}
	maps.DeleteFunc(all, func(_ string, value float64) bool { return value == 0 })
	return all
}

// ownRequest reports whether a series can be about what servers do by themselves, or the test to find out whether they are ready.
func ownRequest(labels map[string]string) bool {
	switch labels["resource"] {
	case "leases", "apiservices", "endpoints", "endpointslices", "flowschemas", "prioritylevelconfigurations", "servicecidrs", "ipaddresses", "services",
		"customresourcedefinitions", "namespaces", "nodes", "events", "clusterroles", "clusterrolebindings", "roles", "rolebindings":
		return true
	}
	switch labels["subresource"] {
	case "apis", "api", "openapi/v3", "openapi/v2", "/readyz", "/metrics", "/metrics/slis", "/apis", "/api", "/openapi/v3", "/openapi/v2":
		return labels["resource"] == ""
	}
	return labels["verb"] == "WATCH" && labels["scope"] == "cluster" || labels["verb"] == "LIST" && labels["scope"] == "cluster"
}

func familiesOf(t *testing.T, config *rest.Config, path string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(do(t, config, http.MethodGet, path, "").body))
	if err != nil {
		t.Fatal(err)
	}
	return families
}
