package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/declared"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/panics"
	"github.com/catena-dev/catena/host/internal/pki"
	"github.com/catena-dev/catena/host/internal/problems"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// reloader applies new configurations, and has the one that is in effect.
type reloader struct {
	*live
	load func() (*config.Config, error)
	// reloaded is called with the result of each reload.
	reloaded func(*admin.Reload)
	attach   declared.Attachments
	logs     *logs
	front    *front.Frontend
	stages   *supervisor.Supervisor
	relay    *relay.Chain
	notifier *notifier
	// certificates are those that are renewed when they are due, and ends knows which files have others than before.
	certificates *certificates
	ends         *pki.Ends

	mu   sync.Mutex // one reload at a time
	last atomic.Pointer[admin.Reload]
}

// follow applies the configuration as it is by then, whenever it is asked to.
func (r *reloader) follow(ctx context.Context, asked <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-asked:
		}
		_, _ = r.reload(ctx) // which logs the result
	}
}

// reload reads the configuration and applies it: the smallest set of swaps, additions,
// removals and re-orderings of stages, and what needs no new process. A configuration
// that is wrong, or that changes what only a restart applies, changes nothing. One
// reload at a time. Its result is kept, counted and logged.
func (r *reloader) reload(ctx context.Context) (*admin.Reload, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.notifier.reload()()
	result := &admin.Reload{At: time.Now()}
	err := r.apply(ctx, result)
	if err != nil {
		result.Error = err.Error()
		r.front.Metrics().ObserveReload(front.Failed, result.At)
		r.logs.host.Error("configuration not applied, nothing has changed", "error", err)
	} else {
		r.front.Metrics().ObserveReload(front.Succeeded, result.At)
		r.logs.host.Info("configuration " + result.String())
	}
	r.last.Store(result)
	r.reloaded(result)
	return result, err
}

func (r *reloader) apply(ctx context.Context, result *admin.Reload) error {
	cfg, err := r.load()
	if err != nil {
		return problems.List(err)
	}
	settings, fixed := compare(r.config(), cfg)
	if len(fixed) > 0 {
		return fmt.Errorf("only a restart of the host applies %s", strings.Join(fixed, ", "))
	}
	files, fileErr := r.front.Reread()
	wanted, err := declared.Specs(cfg, r.attach)
	if err := errors.Join(err, fileErr); err != nil {
		return problems.List(err)
	}
	applied, err := r.stages.Apply(ctx, wanted)
	if err != nil {
		return err
	}
	result.Applied = applied
	result.Settings = append(unattached(settings, applied), files.Changed...)
	result.Stale = files.Stale
	r.certificates.renewNow()
	for _, flag := range r.ends.Look() {
		result.Settings = append(result.Settings, "apiserver."+flag)
	}
	files.Apply()
	r.current.Store(cfg)
	for _, stage := range r.logs.apply(cfg.Log) {
		go panics.Contain(func() { r.tellLogLevel(stage, cfg.Log.LevelOf(stage)) }, r.logs.panicked)()
	}
	r.stages.SetHoldTimeout(cfg.HoldTimeout)
	r.relay.SetHold(relay.Limits{Requests: int(cfg.HoldRequests)})
	return nil
}

// logLevelTimeout bounds the call that changes the level of a process.
const logLevelTimeout = 2 * time.Second

// tellLogLevel has the processes of a stage log at a level. Those that cannot change theirs keep it until they are replaced.
func (r *reloader) tellLogLevel(stage, level string) {
	ctx, cancel := context.WithTimeout(context.Background(), logLevelTimeout)
	defer cancel()
	if err := r.stages.SetLogLevel(ctx, stage, level); err != nil {
		r.logs.host.Debug("log level of running processes not changed", "stage", stage, "error", err)
	}
}

// isLive reports whether the key of a setting takes effect without a restart of the host.
func isLive(key string) bool {
	switch section, _, _ := strings.Cut(key, "."); section {
	case "stages", "watchPlugins", "pluginDirs", "holdTimeout", "holdRequests", "log":
		return true
	}
	return false
}

// compare returns the keys that differ: those that take effect while the host runs, and
// those that only a restart applies.
func compare(was, is *config.Config) (live, fixed []string) {
	before, after := values(was), values(is)
	for key := range after {
		if _, ok := before[key]; !ok {
			before[key] = ""
		}
	}
	for key, value := range before {
		if now, ok := after[key]; ok && now == value {
			continue
		}
		if isLive(key) {
			live = append(live, key)
		} else {
			fixed = append(fixed, key)
		}
	}
	slices.Sort(live)
	slices.Sort(fixed)
	return live, fixed
}

// values are the settings that count by key, each as JSON would have it, so that none is empty.
// Those of disabled stages do not count.
func values(c *config.Config) map[string]string {
	m := map[string]string{}
	for _, s := range c.Effective() {
		if rest, ok := strings.CutPrefix(s.Key, "stages."); ok {
			if stage, _, _ := strings.Cut(rest, "."); slices.Contains(c.Disabled, stage) {
				continue
			}
		}
		m[s.Key] = fmt.Sprintf("%#v", s.Value)
	}
	return m
}

// unattached leaves out the keys of stages that the applied change tells of by name.
func unattached(keys []string, a supervisor.Applied) []string {
	told := slices.Concat(a.Added, a.Removed, a.Swapped)
	return slices.DeleteFunc(keys, func(key string) bool {
		rest, ok := strings.CutPrefix(key, "stages.")
		stage, name, _ := strings.Cut(rest, ".")
		return ok && (slices.Contains(told, stage) || name == "delegate")
	})
}
