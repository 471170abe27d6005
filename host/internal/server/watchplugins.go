package server

import (
	"context"
	"errors"

	"github.com/hashicorp/go-hclog"

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
}

func (p *pluginWatcher) run(ctx context.Context) {
	pluginwatch.Watch(ctx, pluginwatch.Options{
		Files:   p.files,
		Digest:  process.Digest,
		Problem: p.unused,
		Changed: func(ctx context.Context, f pluginwatch.File, digest string) (again bool) {
			err := p.swap(ctx, f, digest)
			if errors.Is(err, supervisor.ErrBusy) {
				return true
			}
			if err != nil && ctx.Err() == nil {
				p.unused(f, err)
			}
			return false
		},
	})
}

func (p *pluginWatcher) unused(f pluginwatch.File, err error) {
	p.log.Error("changed plugin is not used, the stage goes on with the old one", "stage", f.Stage, "path", f.Path, "error", err)
}

// swap starts a stage from its new binary.
func (p *pluginWatcher) swap(ctx context.Context, f pluginwatch.File, digest string) error {
	b, err := process.Check(f.Path)
	if err != nil {
		p.stages.SwapRefused(f.Stage, err)
		return err
	}
	_, err = p.stages.Swap(ctx, f.Stage, supervisor.SwapOptions{Change: func(spec *supervisor.Spec) {
		spec.Binary, spec.Digest, spec.SHA256 = b.Path, digest, p.reloader.config().Stages[f.Stage].Sha256
	}})
	return err
}

// files are the binaries of the stages where they are now; none if they are not to be
// watched.
func (p *pluginWatcher) files() []pluginwatch.File {
	cfg := p.reloader.config()
	if !cfg.WatchPlugins {
		return nil
	}
	running := map[string]string{}
	for _, spec := range p.stages.Specs() {
		running[spec.Name] = spec.Digest
	}
	var files []pluginwatch.File
	for _, name := range cfg.Order {
		if p.reloader.attach[name] != "" {
			continue
		}
		if path := binaryPath(cfg, name); path != "" {
			files = append(files, pluginwatch.File{Stage: name, Path: path, Running: running[name]})
		}
	}
	return files
}
