package metrics

import (
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/bounds"
)

// onceLog logs each problem of a stage once, for as long as it lasts.
type onceLog struct {
	log hclog.Logger

	mu sync.Mutex
	// logged are, of each stage, the families that are left out, "" if all of them are.
	logged map[string]map[string]bool
}

func (o *onceLog) warn(stage, family, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.logged == nil {
		o.logged = map[string]map[string]bool{}
	}
	of := o.logged[stage]
	if of == nil {
		of = map[string]bool{}
		o.logged[stage] = of
	}
	if of[family] || family != "" && len(of) >= bounds.MetricWarnings { // a stage can have any number of names
		return
	}
	of[family] = true
	if family == "" {
		o.log.Warn("metrics of a stage are left out", "stage", stage, "reason", text)
		return
	}
	o.log.Warn("a metric of a stage is left out", "stage", stage, "metric", family, "reason", text)
}

// forget forgets the problem of a stage whose metrics could be gathered again.
func (o *onceLog) forget(stage string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.logged[stage], "")
}
