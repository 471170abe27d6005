// Package dev builds the program of a stage anew whenever its Go sources change.
package dev

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// sources are what a program is built from, as far as it is at work on here: without the
// standard library and the modules that were downloaded.
type sources struct {
	// dirs are those of packages: every Go file in them counts, also one that is new.
	dirs []string
	// files are others: embedded ones, go.mod and go.sum.
	files []string
}

// findSources asks the go command.
func findSources(ctx context.Context, dir string) (sources, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-json=Dir,Standard,Module,EmbedFiles", ".")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return sources{}, fmt.Errorf("go list in %s: %w\n%s", dir, err, bytes.TrimSpace(stderr.Bytes()))
	}
	var s sources
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return sources{}, fmt.Errorf("go list in %s: %w", dir, err)
		}
		s.add(p)
	}
	slices.Sort(s.files)
	s.files = slices.Compact(s.files)
	return s, nil
}

// listed is what go list says of a package.
type listed struct {
	Dir        string
	Standard   bool
	EmbedFiles []string
	Module     *struct {
		Main    bool
		GoMod   string
		Replace *struct{ Version string }
	}
}

func (s *sources) add(p listed) {
	if p.Standard || p.Module != nil && !p.Module.Main && (p.Module.Replace == nil || p.Module.Replace.Version != "") {
		return
	}
	s.dirs = append(s.dirs, p.Dir)
	for _, name := range p.EmbedFiles {
		s.files = append(s.files, filepath.Join(p.Dir, name))
	}
	if p.Module != nil && p.Module.GoMod != "" {
		s.files = append(s.files, p.Module.GoMod, strings.TrimSuffix(p.Module.GoMod, "mod")+"sum")
	}
}

// fingerprint changes when a file does, appears or goes.
func (s sources) fingerprint() uint64 {
	h := fnv.New64a()
	note := func(path string, info os.FileInfo, err error) {
		if err == nil {
			fmt.Fprintln(h, path, info.Size(), info.ModTime().UnixNano())
		}
	}
	for _, dir := range s.dirs {
		entries, _ := os.ReadDir(dir) // one that is gone has no files
		for _, e := range entries {
			if name := e.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(name, ".") {
				info, err := e.Info()
				note(filepath.Join(dir, name), info, err)
			}
		}
	}
	for _, path := range s.files {
		info, err := os.Stat(path)
		note(path, info, err)
	}
	return h.Sum64()
}
