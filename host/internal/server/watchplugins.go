package server

import (
	"context"
	"errors"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/declared"
	"github.com/catena-dev/catena/host/internal/pluginwatch"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// pluginWatcher swaps a stage whenever its binary is replaced by another, as long as the
// configuration says so.
type pluginWatcher struct {
	log      hclog.Logger
	stages   *supervisor.Supervisor
	reloader *reloader
	digests  *process.Digests // of one look at the files
}

func (p *pluginWatcher) run(ctx context.Context) {
	pluginwatch.Watch(ctx, pluginwatch.Options{
		Files:   p.files,
		Digest:  p.digest,
		Problem: p.unused,
		Changed: func(ctx context.Context, f pluginwatch.File, digest string) pluginwatch.Result {
			err := p.swap(ctx, f, digest)
			if errors.Is(err, supervisor.ErrBusy) {
				return pluginwatch.Again
			}
			if err != nil && ctx.Err() == nil {
				p.unused(f, err)
			}
			if _, notLocked := errors.AsType[*declared.NotLockedError](err); notLocked {
				return pluginwatch.NotLocked
			}
			return pluginwatch.Done
		},
	})
}

func (p *pluginWatcher) unused(f pluginwatch.File, err error) {
	p.log.Error("changed plugin is not used, the stage goes on with the old one", "stage", f.Stage, "path", f.Path, "error", err)
}

// swap starts a stage from its new binary.
func (p *pluginWatcher) swap(ctx context.Context, f pluginwatch.File, digest string) error {
	cfg := p.reloader.config()
	_, err := p.stages.Swap(ctx, f.Stage, supervisor.SwapOptions{Default: declared.DefaultRollback(cfg, f.Stage),
		Change: func(spec *supervisor.Spec) error {
			return declared.SetReplaced(cfg, spec, f.Path, digest)
		}})
	return err
}

func (p *pluginWatcher) digest(f pluginwatch.File) (string, error) {
	return declared.DigestOf(p.reloader.config(), f.Stage, f.Path, p.digests.Of)
}

// files are the binaries of the stages where they are now; none if they are not to be
// watched.
func (p *pluginWatcher) files() []pluginwatch.File {
	cfg := p.reloader.config()
	if !cfg.WatchPlugins {
		return nil
	}
	p.digests = new(process.Digests)
	running := map[string]string{}
	for _, spec := range p.stages.Specs() {
		running[spec.Name] = spec.Digest
	}
	lock := declared.LockState(cfg)
	var files []pluginwatch.File
	for _, name := range cfg.Order {
		if p.reloader.attach[name] != "" {
			continue
		}
		if path := declared.BinaryPath(cfg, name); path != "" {
			f := pluginwatch.File{Stage: name, Path: path, Running: running[name]}
			if declared.NeedsLock(cfg, name, path) {
				f.Lock = lock
			}
			files = append(files, f)
		}
	}
	return files
}
