package system

import (
	"flag"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/catena-dev/catena/test/internal/cluster"
)

var restFor = flag.Duration("rest.for", 0, "how long nobody uses the server of TestRest; that test is skipped without it")

// A server that nobody uses logs no warning and no error, its stages keep their processes, and no watch of the store ends: each
// of these would be a connection, a timer or a cache that breaks by itself.
func TestRest(t *testing.T) {
	if *restFor == 0 {
		t.Skip("needs -rest.for: make rest")
	}
	c := catena(t, cluster.Options{ConfigFile: filepath.Join(cluster.Root(), "configs", "catena.yaml"), Set: []string{"log.format=json", "log.stageLevel=warn"}})
	awaitKubernetesService(t, c)
	before, stages, began := restFigures(t, c), c.Stages(), time.Now()
	if before.watches == 0 {
		t.Fatal("the metrics have no watch of the store")
	}
	select {
	case <-time.After(*restFor):
	case <-c.Process().Done:
		t.Fatal("the server has ended")
	}
	after := restFigures(t, c)
	t.Logf("%d watches of the store; processor time of all processes: %.2f %% of one CPU", int(after.watches),
		100*(after.cpu-before.cpu)/time.Since(began).Seconds())
	if after.ended != before.ended {
		t.Errorf("%d watches of the store have ended", int(after.ended-before.ended))
	}
	for name, pid := range c.Stages() {
		if stages[name] != pid {
			t.Errorf("stage %s has another process", name)
		}
	}
	for _, line := range complaints(t, c.Process().Log) {
		t.Error(line)
	}
}

// figures are sums over the host and all stages.
type figures struct {
	watches, ended float64 // streams of watches of the store: made, and over
	cpu            float64 // seconds
}

func restFigures(t *testing.T, c *cluster.Catena) (f figures) {
	t.Helper()
	if r := do(t, c.Config(cluster.Admin), http.MethodGet, "/readyz", ""); r.code != http.StatusOK {
		t.Errorf("not ready: %s", r.body)
	}
	families := familiesOf(t, c.Config(cluster.Admin), "/metrics")
	watches := func(family string) (n float64) {
		for _, m := range families[family].GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "grpc_method" && l.GetValue() == "Watch" {
					n += m.GetCounter().GetValue()
				}
			}
		}
		return n
	}
	for _, m := range families["process_cpu_seconds_total"].GetMetric() {
		f.cpu += m.GetCounter().GetValue()
	}
	f.watches, f.ended = watches("grpc_client_started_total"), watches("grpc_client_handled_total")
	return f
}
