package metrics

import (
	"sync"

	"github.com/hashicorp/go-hclog"
)

// onceLog logs each problem of a stage once, for as long as it lasts.
type onceLog struct {
	log hclog.Logger

	mu   sync.Mutex
	said map[problem]bool
}

// problem is what is wrong with a family of a stage, or with the stage if that is "".
type problem struct{ stage, family string }

// maxSaid bounds what is remembered: a stage can make up names without end.
const maxSaid = 10_000

func (o *onceLog) warn(stage, family, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := problem{stage, family}
	if o.said[p] || len(o.said) >= maxSaid {
		return
	}
	if o.said == nil {
		o.said = map[problem]bool{}
	}
	o.said[p] = true
	if family == "" {
		o.log.Warn("metrics of a stage are left out", "stage", stage, "reason", text)
		return
	}
	o.log.Warn("a metric of a stage is left out", "stage", stage, "metric", family, "reason", text)
}

// forget is called when a stage's metrics could be gathered again.
func (o *onceLog) forget(stage string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.said, problem{stage: stage})
}
