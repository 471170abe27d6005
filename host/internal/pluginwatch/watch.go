// Package pluginwatch notices that the binary of a stage has been replaced by another,
// wholly written one.
//
// It looks at the files again and again, rather than have the kernel tell of changes: a
// look costs some microseconds, it works on every file system, and a directory that is
// deleted and made anew, or a file that comes to be found in another directory, is nothing
// special.
package pluginwatch

import (
	"context"
	"time"
)

// File is the binary of a stage.
type File struct {
	Stage string
	// Path is where the binary lies now. It may be another one at each call.
	Path string
	// Running is the digest of the binary that the stage runs from.
	Running string
	// Lock is the state of what says which binaries may run.
	Lock string
}

// Result says when Changed is to be called again with the same content.
type Result int

const (
	// Done is for a content that was used, or never will be.
	Done Result = iota
	// Again is for one that can be used in a moment.
	Again
	// NotLocked is for one that can be used once File.Lock has changed.
	NotLocked
)

// Options say what is watched.
type Options struct {
	// Files returns the binaries to watch. One that is not there is left out.
	Files func() []File
	// Digest returns the digest of a file in the form of File.Running.
	Digest func(f File) (string, error)
	// Changed is called with a file that has another content than what runs, once it
	// has not changed for Settle and no process has it open for writing, and with its
	// digest. It is called once for each content, unless the result asks for more.
	Changed func(ctx context.Context, f File, digest string) Result
	// Problem is called with a file that cannot be used as it is, such as one that is
	// incomplete, once for each state of it.
	Problem func(f File, err error)
	// Every is the time between two looks, half a second if 0; Settle is a second if 0.
	Every, Settle time.Duration
}

// Watch watches until ctx ends.
func Watch(ctx context.Context, o Options) {
	if o.Every == 0 {
		o.Every = 500 * time.Millisecond
	}
	if o.Settle == 0 {
		o.Settle = time.Second
	}
	w := &watcher{Options: o, seen: map[string]*sight{}}
	tick := time.NewTicker(o.Every)
	defer tick.Stop()
	for {
		w.look(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

type watcher struct {
	Options
	seen map[string]*sight // by stage
}

// sight is what is known of the binary of one stage.
type sight struct {
	state state
	since time.Time
	// done reports whether nothing is left to do about this state.
	done bool
	// handled is the content that Changed was last called with. If refused is set, the lock
	// refusedBy did not have it.
	handled   string
	refused   bool
	refusedBy string
	// problem is what Problem was last called with, until the file can be used.
	problem string
}

// tell calls Problem, once for each problem: a file that is touched has none that is new.
func (w *watcher) tell(f File, s *sight, err error) {
	if err.Error() != s.problem {
		s.problem = err.Error()
		w.Problem(f, err)
	}
}

func (w *watcher) look(ctx context.Context) {
	present := map[string]bool{}
	for _, f := range w.Files() {
		if ctx.Err() != nil {
			return
		}
		present[f.Stage] = true
		w.lookAt(ctx, f)
	}
	for stage := range w.seen {
		if !present[stage] {
			delete(w.seen, stage)
		}
	}
}

func (w *watcher) lookAt(ctx context.Context, f File) {
	now, err := stateOf(f.Path)
	if err != nil {
		return // between the removal of a file and the coming of the next
	}
	s := w.seen[f.Stage]
	if s == nil {
		s = &sight{}
		w.seen[f.Stage] = s
	}
	if s.state != now {
		s.state, s.since, s.done = now, time.Now(), false
	}
	if s.refused && s.refusedBy != f.Lock {
		s.refused, s.handled, s.done = false, "", false
	}
	if s.done || time.Since(s.since) < w.Settle {
		return
	}
	if isOpenForWriting(f.Path) {
		s.since = time.Now()
		return
	}
	s.done = true
	if err := checkComplete(f.Path); err != nil {
		w.tell(f, s, err)
		return
	}
	digest, err := w.Digest(f)
	if err != nil {
		w.tell(f, s, err)
		return
	}
	s.problem = ""
	if after, err := stateOf(f.Path); err != nil || after != now {
		s.done = false
		return
	}
	if digest == f.Running || digest == s.handled {
		return
	}
	switch w.Changed(ctx, f, digest) {
	case Again:
		s.done = false
		return
	case NotLocked:
		s.refused, s.refusedBy = true, f.Lock
	}
	s.handled = digest
}
