package metrics

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
)

const (
	stageLabel = "stage"
	// exported is the prefix that a stage's own label of that name gets, as Prometheus
	// does with labels that it sets itself.
	exported = "exported_"
	// reserved begins the names of the host's own metrics.
	reserved = "catena_"
	// otherLabel is stageLabel in the families of kubernetesLabel.
	otherLabel = "catena_stage"
)

// kubernetesLabel reports whether a family of Kubernetes has a label stage of its own, which keeps its name and meaning.
func kubernetesLabel(family string) bool {
	switch family {
	case "kubernetes_feature_enabled", "apiserver_watch_events_dispatch_duration_seconds", "apiserver_egress_dialer_dial_failure_count":
		return true
	}
	return false
}

// sameEverywhere reports whether a family is about the server, and not about one of its processes: the host's series stand
// for those of the stages.
func sameEverywhere(family string) bool { return family == "kubernetes_feature_enabled" }

// merger merges families of several sources.
type merger struct {
	families map[string]*dto.MetricFamily
	// own has the names of the host's families.
	own  map[string]bool
	warn func(stage, family, text string)
}

// newMerger begins with the host's own families, which it changes.
func newMerger(own []*dto.MetricFamily, warn func(stage, family, text string)) *merger {
	m := &merger{families: make(map[string]*dto.MetricFamily, len(own)), own: make(map[string]bool, len(own)), warn: warn}
	for _, f := range own {
		m.families[f.GetName()], m.own[f.GetName()] = f, true
	}
	return m
}

// add adds a family of a stage, which it changes. The help of a family is that of the
// first stage that has it.
func (m *merger) add(stage string, f *dto.MetricFamily) {
	name := f.GetName()
	if strings.HasPrefix(name, reserved) {
		m.warn(stage, name, "names that begin with catena_ are the host's")
		return
	}
	there := m.families[name]
	if there != nil && there.GetType() != f.GetType() {
		m.warn(stage, name, "it is a "+typeName(f)+" here and a "+typeName(there)+" elsewhere")
		return
	}
	seen := map[string]bool{}
	if there != nil && m.own[name] {
		for _, metric := range there.GetMetric() {
			seen[keyOf(metric)] = true
		}
	}
	kept := f.Metric[:0]
	for _, metric := range f.GetMetric() {
		if sameEverywhere(name) && seen[keyOf(sortedLabels(metric))] {
			continue
		}
		label(metric, labelFor(name), stage)
		if key := keyOf(metric); seen[key] {
			m.warn(stage, name, "it has a series twice")
		} else {
			seen[key] = true
			kept = append(kept, metric)
		}
	}
	f.Metric = kept
	if there == nil {
		m.families[name] = f
	} else {
		there.Metric = append(there.Metric, kept...)
	}
}

func typeName(f *dto.MetricFamily) string { return strings.ToLower(f.GetType().String()) }

func labelFor(family string) string {
	if kubernetesLabel(family) {
		return otherLabel
	}
	return stageLabel
}

// label gives a series the label name, with the stage as its value. One that the stage has set itself gets another name.
func label(metric *dto.Metric, name, stage string) {
	for i := indexOf(metric, name); i >= 0; i = indexOf(metric, name) {
		free := exported + name
		for indexOf(metric, free) >= 0 {
			free = exported + free
		}
		metric.Label[i].Name = proto.String(free)
	}
	metric.Label = append(metric.Label, &dto.LabelPair{Name: proto.String(name), Value: proto.String(stage)})
	sortedLabels(metric)
}

func sortedLabels(metric *dto.Metric) *dto.Metric {
	slices.SortFunc(metric.Label, byName)
	return metric
}

func indexOf(metric *dto.Metric, name string) int {
	return slices.IndexFunc(metric.Label, func(l *dto.LabelPair) bool { return l.GetName() == name })
}

func byName(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) }

// keyOf returns a key of a series, unique in its family. Labels are sorted by name.
func keyOf(metric *dto.Metric) string {
	var b strings.Builder
	for _, l := range metric.GetLabel() {
		b.WriteString(l.GetName())
		b.WriteByte(0xff) // not in valid text
		b.WriteString(l.GetValue())
		b.WriteByte(0xff)
	}
	return b.String()
}

// addScrapes adds the metrics about the scrapes of the stages.
func (m *merger) addScrapes(scrapes []scrape) {
	success := gauge("catena_stage_scrape_success", "Whether the metrics of a stage could be gathered.")
	took := gauge("catena_stage_scrape_duration_seconds", "How long it took to gather the metrics of a stage.")
	for _, s := range scrapes {
		ok := 0.0
		if s.err == nil {
			ok = 1
		}
		success.Metric = append(success.Metric, sample(s.stage, ok))
		took.Metric = append(took.Metric, sample(s.stage, s.took.Seconds()))
	}
	if len(scrapes) > 0 {
		m.families[success.GetName()], m.families[took.GetName()] = success, took
	}
}

func gauge(name, help string) *dto.MetricFamily {
	return &dto.MetricFamily{Name: &name, Help: &help, Type: dto.MetricType_GAUGE.Enum()}
}

func sample(stage string, value float64) *dto.Metric {
	m := &dto.Metric{Gauge: &dto.Gauge{Value: &value}}
	label(m, stageLabel, stage)
	return m
}

// sorted returns all families by name.
func (m *merger) sorted() []*dto.MetricFamily {
	return slices.SortedFunc(maps.Values(m.families), func(a, b *dto.MetricFamily) int {
		return cmp.Compare(a.GetName(), b.GetName())
	})
}
