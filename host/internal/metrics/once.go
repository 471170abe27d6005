package metrics

import (
	"sync"

	"github.com/hashicorp/go-hclog"
)

// onceLog logs each problem of a stage once, for as long as it lasts.
type onceLog struct {
	log hclog.Logger

	mu     sync.Mutex
	logged map[problem]bool
}

// problem is a family of a stage that is left out, or the stage if family is "".
type problem struct{ stage, family string }

// maxLogged bounds what is remembered: a stage can have any number of names.
const maxLogged = 10_000

func (o *onceLog) warn(stage, family, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := problem{stage, family}
	if o.logged[p] || len(o.logged) >= maxLogged {
		return
	}
	if o.logged == nil {
		o.logged = map[problem]bool{}
	}
	o.logged[p] = true
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
	delete(o.logged, problem{stage: stage})
}
