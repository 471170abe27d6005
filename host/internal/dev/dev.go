package dev

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/catena-dev/catena/host/internal/process"
)

// Options say what to build and what to do with it.
type Options struct {
	// Dirs are the directories of the programs' main packages.
	Dirs []string
	// Out is the directory for the binaries, which outlive the loop: a stage that crashes
	// is started from its binary again. It is made if it is not there.
	Out string
	// Swap makes a server use a binary, and returns a description of how that went.
	Swap func(ctx context.Context, stage, binary string) (string, error)
	// Say is called with what happens, in lines for people.
	Say func(text string)
	// Poll is how often the sources are looked at; half a second if 0.
	Poll time.Duration
}

const defaultPoll = time.Second / 2

// Run builds every program and swaps it in, and again whenever its sources change, until
// ctx ends. A build that fails is shown and leaves what runs as it is. An error means that
// there is nothing that could be built.
func Run(ctx context.Context, opts Options) error {
	if opts.Poll <= 0 {
		opts.Poll = defaultPoll
	}
	var err error
	if opts.Out, err = filepath.Abs(opts.Out); err != nil {
		return err
	}
	// The user of an isolated stage reads its binary there, and the directory above it is closed to others.
	if err := errors.Join(os.MkdirAll(opts.Out, 0o755), os.Chmod(opts.Out, 0o755)); err != nil {
		return err
	}
	var programs []*program
	for _, dir := range opts.Dirs {
		p := &program{dir: dir, opts: &opts}
		if p.sources, err = findSources(ctx, dir); err != nil {
			return err
		}
		programs = append(programs, p)
	}
	for {
		for _, p := range programs {
			p.look(ctx)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(opts.Poll):
		}
	}
}

// program is one of the programs.
type program struct {
	dir     string
	opts    *Options
	sources sources
	stage   string // its name, once it has been built
	// built is the fingerprint of what was built last; seen that of the last look.
	built, seen uint64
}

// look builds the program if its sources have changed, and no longer change.
func (p *program) look(ctx context.Context) {
	now := p.sources.fingerprint()
	settled := now == p.seen || p.built == 0
	p.seen = now
	if now == p.built || !settled {
		return
	}
	p.built = now
	if err := p.build(ctx); err != nil && ctx.Err() == nil {
		p.opts.Say(fmt.Sprintf("%s: %v", p.name(), err))
	}
}

// name is what to call the program.
func (p *program) name() string {
	if p.stage != "" {
		return p.stage
	}
	return p.dir
}

// build makes the binary and has it swapped in.
func (p *program) build(ctx context.Context) error {
	began := time.Now()
	fresh := filepath.Join(p.opts.Out, fmt.Sprintf(".building-%d", os.Getpid()))
	defer os.Remove(fresh)
	cmd := exec.CommandContext(ctx, "go", "build", "-o", fresh, ".")
	cmd.Dir = p.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("does not build, what runs goes on:\n%s", bytes.TrimSpace(append(out, failure(err)...)))
	}
	if s, err := findSources(ctx, p.dir); err == nil { // what it imports may have changed
		p.sources = s
	}
	stage, err := nameOf(ctx, fresh)
	if err != nil {
		return err
	}
	p.stage = stage
	binary := filepath.Join(p.opts.Out, process.BinaryPrefix+stage)
	if err := os.Rename(fresh, binary); err != nil {
		return err
	}
	took := time.Since(began).Round(10 * time.Millisecond)
	how, err := p.opts.Swap(ctx, stage, binary)
	if err != nil {
		return fmt.Errorf("built in %s, but: %w", took, err)
	}
	p.opts.Say(fmt.Sprintf("%s: built in %s, %s", stage, took, how))
	return nil
}

// failure is what is not in the output of the go command: that it could not be run.
func failure(err error) string {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return ""
	}
	return err.Error()
}

// describeTimeout bounds a program that is asked for its name.
const describeTimeout = 10 * time.Second

// nameOf asks a program that was built for the name of its stage.
func nameOf(ctx context.Context, binary string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	var description struct{ Name string }
	out, err := exec.CommandContext(ctx, binary, "--describe").Output()
	if err == nil {
		err = json.Unmarshal(out, &description)
	}
	if err == nil && (description.Name == "" || filepath.Base(description.Name) != description.Name) {
		err = fmt.Errorf("its name is %q", description.Name)
	}
	if err != nil {
		return "", fmt.Errorf("is no stage: it does not describe itself with --describe, as every stage of the SDK does: %w", err)
	}
	return description.Name, nil
}
