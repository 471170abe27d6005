package metrics

import (
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/bounds"
)

// onceLog logs each problem of a stage, and of the host's own metrics, once, for as long as it lasts.
type onceLog struct {
	log hclog.Logger

	mu sync.Mutex
	// ownFails is set while some of the host's own metrics are left out.
	ownFails bool
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

// own logs why some of the host's own metrics are left out, up to 1 KiB of it; nil is that none are.
func (o *onceLog) own(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil && !o.ownFails {
		text := strings.Join(strings.Fields(err.Error()), " ") // it has several lines, with the stack if a collector panics
		o.log.Warn("some of the host's own metrics are left out", "error", text[:min(len(text), 1<<10)])
	}
	o.ownFails = err != nil
}
