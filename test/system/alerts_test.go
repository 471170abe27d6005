package system

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"sigs.k8s.io/yaml"

	"github.com/catena-dev/catena/test/internal/cluster"
)

var (
	// selector is a metric with its matchers in an expression of PromQL; functions and keywords have neither an
	// underscore in their name and braces, nor the prefix of a metric.
	selector = regexp.MustCompile(`\b((?:catena|apiserver)_[a-z_]+)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`([a-z_]+)(?:=~|!~|!=|=)"`)
	grouping = regexp.MustCompile(`by \(([^)]*)\)`)
)

// The alert rules and the dashboard ask for metrics and labels that a running chain has, or that docs/metrics.md has for what need
// not happen; each alert has a section in docs/runbooks.md.
func TestAlertsAndDashboard(t *testing.T) {
	t.Parallel()
	l := theLong(t)
	labels := documentedMetrics(t)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(do(t, l.Config(cluster.Admin), http.MethodGet, "/metrics", "").body))
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range families {
		for _, metric := range f.GetMetric() {
			for _, label := range metric.GetLabel() {
				labels[name] = append(labels[name], label.GetName())
			}
		}
		labels[name] = append(labels[name], "instance") // Prometheus adds it
	}
	var expressions []string
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations map[string]string
			}
		}
	}
	parsed(t, "rules.yaml", func(text []byte) error { return yaml.Unmarshal(text, &rules) })
	runbooks, err := os.ReadFile(filepath.Join(cluster.Root(), "docs", "runbooks.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			expressions = append(expressions, rule.Expr)
			if !strings.Contains(string(runbooks), "\n## "+rule.Alert+"\n") || !strings.HasSuffix(rule.Annotations["runbook_url"], "/docs/runbooks.md#"+strings.ToLower(rule.Alert)) {
				t.Errorf("%s has no section in docs/runbooks.md, or a wrong link: %s", rule.Alert, rule.Annotations["runbook_url"])
			}
			for _, label := range regexp.MustCompile(`\$labels\.([a-z_]+)`).FindAllStringSubmatch(rule.Annotations["summary"], -1) {
				if name := selector.FindStringSubmatch(rule.Expr)[1]; !slices.Contains(labels[name], label[1]) {
					t.Errorf("%s: %s has no label %s", rule.Alert, name, label[1])
				}
			}
		}
	}
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	parsed(t, "dashboard.json", func(text []byte) error { return json.Unmarshal(text, &dashboard) })
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			expressions = append(expressions, target.Expr)
		}
	}
	if len(expressions) < 20 {
		t.Errorf("only %d expressions", len(expressions))
	}
	for _, expr := range expressions {
		checkExpression(t, expr, labels)
	}
}

// documentedMetrics are the labels of the metrics in docs/metrics.md.
func documentedMetrics(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(cluster.Root(), "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)(?:\\{([a-z_,]*)\\})?` \\|").FindAllStringSubmatch(string(text), -1) {
		labels[row[1]] = append(strings.Split(row[2], ","), "instance")
	}
	return labels
}

// parsed reads a file of configs/prometheus.
func parsed(t *testing.T, file string, parse func([]byte) error) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(cluster.Root(), "configs", "prometheus", file))
	if err == nil {
		err = parse(text)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func checkExpression(t *testing.T, expr string, labels map[string][]string) {
	t.Helper()
	all := selector.FindAllStringSubmatch(expr, -1)
	if len(all) == 0 {
		t.Errorf("%s asks for no metric", expr)
	}
	for _, s := range all {
		name := strings.TrimSuffix(s[1], "_bucket")
		known, ok := labels[name]
		if !ok {
			t.Errorf("%s: there is no metric %s", expr, name)
			continue
		}
		used := matcher.FindAllStringSubmatch(s[2], -1)
		for _, group := range grouping.FindAllStringSubmatch(expr, -1) {
			for label := range strings.SplitSeq(group[1], ", ") {
				used = append(used, []string{"", label})
			}
		}
		for _, label := range used {
			if !slices.Contains(known, label[1]) && label[1] != "le" {
				t.Errorf("%s: %s has no label %s", expr, name, label[1])
			}
		}
	}
}
