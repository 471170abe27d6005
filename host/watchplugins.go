package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/pluginwatch"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// watchPlugins swaps a stage whenever its binary is replaced by another, as long as the
// configuration says so.
func (s *server) watchPlugins(ctx context.Context) {
	unused := func(f pluginwatch.File, err error) {
		s.log.Error("changed plugin is not used, the stage goes on with the old one", "stage", f.Stage, "path", f.Path, "error", err)
	}
	pluginwatch.Watch(ctx, pluginwatch.Options{
		Files:   s.watchedBinaries,
		Digest:  process.Digest,
		Problem: unused,
		Changed: func(ctx context.Context, f pluginwatch.File, digest string) (again bool) {
			err := s.useBinary(ctx, f, digest)
			if errors.Is(err, supervisor.ErrBusy) {
				return true
			}
			if err != nil && ctx.Err() == nil {
				unused(f, err)
			}
			return false
		},
	})
}

// useBinary swaps a stage to what its binary has become.
func (s *server) useBinary(ctx context.Context, f pluginwatch.File, digest string) error {
	b, err := process.Check(f.Path)
	if err != nil {
		s.stages.SwapRefused(f.Stage, err)
		return err
	}
	_, err = s.stages.Swap(ctx, f.Stage, supervisor.SwapOptions{Change: func(spec *supervisor.Spec) {
		spec.Binary, spec.Digest, spec.SHA256 = b.Path, digest, s.config().Stages[f.Stage].Sha256
	}})
	return err
}

// watchedBinaries are the binaries of the stages where they lie now; none if they are
// not to be watched.
func (s *server) watchedBinaries() []pluginwatch.File {
	cfg := s.config()
	if !cfg.WatchPlugins {
		return nil
	}
	running := map[string]string{}
	for _, spec := range s.stages.Specs() {
		running[spec.Name] = spec.Digest
	}
	var files []pluginwatch.File
	for _, name := range cfg.Order {
		if s.attach[name] != "" {
			continue
		}
		if path := binaryPath(cfg, name); path != "" {
			files = append(files, pluginwatch.File{Stage: name, Path: path, Running: running[name]})
		}
	}
	return files
}

// binaryPath is where the binary of a stage is, without a look at it; empty if it is not
// there, which it may be for a moment only.
func binaryPath(cfg *config.Config, stage string) string {
	if path := cfg.Stages[stage].Binary; path != "" {
		return path
	}
	for _, dir := range cfg.PluginDirs {
		path := filepath.Join(dir, process.BinaryPrefix+stage)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}
