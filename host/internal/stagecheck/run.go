package stagecheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/schema"
)

// Options are what to check.
type Options struct {
	// Binary is the path of the stage's binary.
	Binary string
	// Name is what the stage must call itself; the one in the file's name if empty.
	Name string
	// Config is the stage's own configuration as JSON; none if empty.
	Config json.RawMessage
	// Flags are the API server's, each as name=value, for stages that are API servers.
	Flags []string
	// Env is added to the stage's environment, as stages.NAME.env is.
	Env map[string]string
	// Paths are sent ordinary requests; paths that the stage claims if empty.
	Paths []string
	// Endpoints is the path below which the stage serves check endpoints, see section 9
	// of docs/protocol.md. What needs them is skipped if it is empty.
	Endpoints string
	// Through is a path below which the stage passes requests on with calls, see section 9 too. What needs it is
	// skipped if it is empty.
	Through string
	// Requests is how many requests the memory check makes; 10,000 if 0.
	Requests int
	// Timeout bounds each step that is expected to take no time; 30 s if 0.
	Timeout time.Duration
	// Only names the checks to run; all if empty. Others are not reported. A name that no
	// check has is an error.
	Only []string
	// Skip names checks that are not made: they are reported as skipped.
	Skip []string
	// Peer is the command line of a program that calls Peer with the rest of its arguments: a process that is not the stage's
	// host. Without it, the check that needs one is skipped.
	Peer []string
	// Progress is called with each result, as it comes. It may be nil.
	Progress func(Result)
}

func (o Options) withDefaults() Options {
	if o.Requests == 0 {
		o.Requests = 10000
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	if len(o.Config) == 0 {
		o.Config = json.RawMessage("null")
	}
	if o.Progress == nil {
		o.Progress = func(Result) {}
	}
	return o
}

// patience is how long a step may take, as a part of Options.Timeout: what is quick on any
// machine still takes its time on one that is busy.
type patience time.Duration

func (p patience) part(of int) time.Duration { return time.Duration(p) / time.Duration(of) }

// Parts of the timeout, with their values for that of half a minute.
func (p patience) probe() time.Duration  { return p.part(6) }  // 5 s: an ordinary request; what takes longer is a watch
func (p patience) exit() time.Duration   { return p.part(6) }  // 5 s: the end of a process that must end in a second
func (p patience) settle() time.Duration { return p.part(2) }  // 15 s: tidying up
func (p patience) third() time.Duration  { return p.part(3) }  // 10 s: what should take none
func (p patience) health() time.Duration { return p.part(15) } // 2 s: the host's deadline for health checks

// suite is one run over all checks.
type suite struct {
	opts   Options
	wait   patience
	binary process.Binary
	dir    string // for sockets
	logs   *recorder
	report *Report

	check string // that is being made
	stage *stage // running and prepared; nil if none is
	// cannot is why no stage can be had, once that is known.
	cannot error
}

// Run checks a binary. The error is why it cannot be checked at all; what is wrong
// with it is in the report.
func Run(ctx context.Context, opts Options) (*Report, error) {
	opts = opts.withDefaults()
	if err := opts.known(); err != nil {
		return nil, err
	}
	binary, err := process.Check(opts.Binary)
	if err != nil {
		return nil, err
	}
	if opts.Name != "" {
		binary.Name = opts.Name
	}
	dir, err := os.MkdirTemp("", "catena-")
	if err != nil {
		return nil, fmt.Errorf("directory for sockets: %w", err)
	}
	defer os.RemoveAll(dir)
	s := &suite{
		opts: opts, wait: patience(opts.Timeout), binary: binary, dir: filepath.Clean(dir), logs: newRecorder(),
		report: &Report{Binary: binary.Path, Name: binary.Name},
	}
	began := time.Now()
	for _, c := range checks() {
		if opts.wants(c) && ctx.Err() == nil {
			s.add(s.run(ctx, c))
		}
	}
	s.drop()
	s.report.Took = time.Since(began)
	if s.report.Count(Failed) > 0 {
		s.report.Log = s.logs.tail()
	}
	return s.report, ctx.Err()
}

// known refuses names of unknown checks.
func (o Options) known() error {
	names := Names()
	for _, name := range slices.Concat(o.Only, o.Skip) {
		if !slices.Contains(names, name) {
			return fmt.Errorf("there is no check %q; the checks are %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

func (o Options) wants(c check) bool { return len(o.Only) == 0 || slices.Contains(o.Only, c.name) }

func (s *suite) add(r Result) {
	s.report.Results = append(s.report.Results, r)
	s.opts.Progress(r)
}

// run makes a result of one check. A stage that has died in it is not used again.
func (s *suite) run(ctx context.Context, c check) Result {
	r := Result{Check: c.name, Summary: c.summary, Section: "docs/protocol.md#" + c.section, Status: Passed}
	if slices.Contains(s.opts.Skip, c.name) {
		r.Status, r.Reason = Skipped, "was not to be made"
		return r
	}
	s.check = c.name
	used, launched := s.stage, s.logs.count()
	began := time.Now()
	limit := s.opts.Timeout
	if c.patient {
		limit *= 10
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := c.run(ctx, s)
	if died := s.died(err); died != nil && !errors.As(err, new(skip)) {
		err = want("a process that lives on", "%v", died)
	}
	r.Took = time.Since(began)
	r.judge(err, limit)
	if r.Status == Failed {
		s.logs.show(launched, used, s.stage)
	}
	return r
}

// judge turns the error of a check into a result.
func (r *Result) judge(err error, limit time.Duration) {
	var wrong *mismatch
	var reason skip
	switch {
	case err == nil:
	case errors.As(err, &reason):
		r.Status, r.Reason = Skipped, string(reason)
	case errors.As(err, &wrong):
		r.Status, r.Expected, r.Got = Failed, wrong.expected, wrong.got
	case errors.Is(err, context.DeadlineExceeded):
		r.Status, r.Expected, r.Got = Failed, fmt.Sprintf("an end within %s", limit), err.Error()
	default:
		r.Status, r.Expected, r.Got = Failed, "no error", err.Error()
	}
}

// exitNotice is how long the end of a process may take to be noticed after a request
// has failed because of it.
const exitNotice = 300 * time.Millisecond

// died returns how the stage has ended, or nil if it runs or was not started.
func (s *suite) died(failure error) error {
	if s.stage == nil || s.stage.ending {
		return nil
	}
	if failure != nil {
		select {
		case <-s.stage.process.Done():
		case <-time.After(exitNotice):
		}
	}
	err := s.stage.process.Err()
	if err != nil {
		s.drop()
	}
	return err
}

// prepared returns the stage that serves requests. It starts one if necessary.
func (s *suite) prepared(ctx context.Context) (*stage, error) {
	if s.stage != nil {
		return s.stage, nil
	}
	if s.cannot != nil {
		return nil, s.cannot
	}
	st, err := s.bringUp(ctx)
	if err != nil {
		s.cannot = skipf("the stage does not come to serve requests: %v", err)
		return nil, s.cannot
	}
	s.stage = st
	return st, nil
}

// bringUp starts another stage and prepares it. The caller has to close it.
func (s *suite) bringUp(ctx context.Context) (*stage, error) {
	st, err := s.launch(ctx)
	if err != nil {
		return nil, err
	}
	err = s.validate(ctx, st)
	if err == nil {
		err = errors.Join(st.configure(ctx, s.opts.Config, false), st.prepare(ctx))
	}
	if err != nil {
		st.close()
		return nil, err
	}
	st.watch(ctx)
	return st, nil
}

// validate checks the configuration as the host does before it configures a stage.
func (s *suite) validate(ctx context.Context, st *stage) error {
	config := map[string]any{}
	if err := json.Unmarshal(s.opts.Config, &config); err != nil {
		return fmt.Errorf("the stage's own configuration: want an object, have %.100s", s.opts.Config)
	}
	return schema.CheckStage(ctx, st.name, st.process, config, st.flags)
}

// drop ends the stage that serves requests.
func (s *suite) drop() {
	if s.stage != nil {
		s.stage.close()
		s.stage = nil
	}
}
