package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// reloaded is how the latest reload of the configuration went.
type reloaded struct {
	At time.Time `json:"at"`
	// Error says why nothing has changed; empty if the configuration is in effect.
	Error string `json:"error,omitempty"`
	supervisor.Applied
	// Settings are keys whose new value is in effect without a new process.
	Settings []string `json:"settings,omitempty"`
	// Stale are flags whose files have changed since the start of the host, and that only
	// a restart applies.
	Stale []string `json:"stale,omitempty"`
}

// String says what has changed, for people.
func (r *reloaded) String() string {
	var parts []string
	for _, p := range []struct {
		what  string
		names []string
	}{{"added", r.Added}, {"removed", r.Removed}, {"swapped", r.Swapped}, {"set", r.Settings}} {
		if len(p.names) > 0 {
			parts = append(parts, p.what+" "+strings.Join(p.names, ", "))
		}
	}
	if r.Reordered {
		parts = append(parts, "reordered")
	}
	text := "applied: " + strings.Join(parts, "; ")
	switch {
	case r.Error != "":
		return "not applied: " + r.Error
	case len(parts) == 0:
		text = "applied, nothing has changed"
	}
	if len(r.Stale) > 0 {
		text += "; only a restart of the host applies the changed files of " + strings.Join(r.Stale, ", ")
	}
	return text
}

// reloadOnHangup applies the configuration as it is by then, whenever SIGHUP comes.
func (s *server) reloadOnHangup(ctx context.Context) {
	defer signal.Stop(s.hangup)
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.hangup:
		}
		_, _ = s.reload(ctx) // which says in the log how it went
	}
}

func (s *server) serveReload(w http.ResponseWriter, r *http.Request) {
	if !s.serving.Load() {
		http.Error(w, errStarting.Error(), http.StatusServiceUnavailable)
		return
	}
	result, err := s.reload(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	writeJSON(w, result)
}

// reload reads the configuration and applies it: the smallest set of swaps, additions,
// removals and re-orderings of stages, and what needs no new process. A configuration
// that is wrong, or that changes what only a restart applies, changes nothing. One
// reload at a time. How it went is kept, counted and logged.
func (s *server) reload(ctx context.Context) (*reloaded, error) {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	result := &reloaded{At: time.Now()}
	err := s.applyConfig(ctx, result)
	if err != nil {
		result.Error = err.Error()
		front.ObserveReload(front.Failed, result.At)
		s.log.Error("configuration not applied, nothing has changed", "error", err)
	} else {
		front.ObserveReload(front.Succeeded, result.At)
		s.log.Info("configuration " + result.String())
	}
	s.lastReload.Store(result)
	return result, err
}

func (s *server) applyConfig(ctx context.Context, result *reloaded) error {
	cfg, err := s.load()
	if err != nil {
		return listProblems(err)
	}
	settings, fixed := compare(s.config(), cfg)
	if len(fixed) > 0 {
		return fmt.Errorf("only a restart of the host applies %s", strings.Join(fixed, ", "))
	}
	files, fileErr := s.front.Reread()
	wanted, err := specs(cfg, s.attach)
	if err := errors.Join(err, fileErr); err != nil {
		return listProblems(err)
	}
	applied, err := s.stages.Apply(ctx, wanted)
	if err != nil {
		return err
	}
	result.Applied = applied
	result.Settings = append(unattached(settings, applied), files.Changed...)
	result.Stale = files.Stale
	files.Apply()
	s.present.Store(cfg)
	s.setLogLevels(cfg.Log)
	s.stages.SetHoldTimeout(cfg.HoldTimeout)
	s.chain.SetHold(relay.Limits{Requests: int(cfg.HoldRequests)})
	return nil
}

// config is the configuration that is in effect.
func (s *server) config() *config.Config { return s.present.Load() }

func (s *server) setLogLevels(l config.Log) {
	s.log.SetLevel(hclog.LevelFromString(l.Level))
	s.others.SetLevel(hclog.LevelFromString(l.StageLevel))
}

// isLive tells whether the key of a setting takes effect without a restart of the host.
func isLive(key string) bool {
	switch section, _, _ := strings.Cut(key, "."); section {
	case "stages", "watchPlugins", "pluginDirs", "holdTimeout", "holdRequests":
		return true
	}
	return key == "log.level" || key == "log.stageLevel"
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

// values are the settings by key, each as JSON would have it, so that none is empty.
func values(c *config.Config) map[string]string {
	m := map[string]string{}
	for _, s := range c.Effective() {
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

var errStarting = errors.New("the server is starting: try again when it is ready")
