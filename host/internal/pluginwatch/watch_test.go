package pluginwatch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

const patience = 20 * time.Second

// watched is a watcher of one file, with what it has told.
type watched struct {
	path string

	mu       sync.Mutex
	running  string
	changes  []string
	problems []string
	looks    int
	lock     string
	answer   func(content string) Result
}

func content(f File) (string, error) {
	b, err := os.ReadFile(f.Path)
	return string(b), err
}

func watch(t *testing.T, path, running string, answer func(string) Result) *watched {
	t.Helper()
	w := &watched{path: path, running: running, answer: answer}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		Watch(ctx, Options{
			Files: w.files, Digest: content, Changed: w.changed, Problem: w.problem,
			Every: 2 * time.Millisecond, Settle: 20 * time.Millisecond,
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

func (w *watched) files() []File {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	return []File{{Stage: "core", Path: w.path, Running: w.running, Lock: w.lock}}
}

func (w *watched) changed(_ context.Context, f File, digest string) Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes = append(w.changes, digest)
	if w.answer != nil {
		return w.answer(digest)
	}
	w.running = digest
	return Done
}

func (w *watched) problem(_ File, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problems = append(w.problems, err.Error())
}

func (w *watched) told() (changes, problems []string, looks int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.changes), slices.Clone(w.problems), w.looks
}

// want waits until exactly these contents have been told of, and looks for a while
// whether there are more.
func (w *watched) want(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, "changes", func() bool { got, _, _ := w.told(); return len(got) >= len(want) })
	w.quiet(t)
	if got, _, _ := w.told(); !slices.Equal(got, want) {
		t.Errorf("told of %q, want %q", got, want)
	}
}

// quiet returns when the watcher has looked often enough to have seen everything.
func (w *watched) quiet(t *testing.T) {
	t.Helper()
	_, _, before := w.told()
	end := time.Now().Add(100 * time.Millisecond)
	eventually(t, "looks", func() bool { _, _, now := w.told(); return now >= before+30 && time.Now().After(end) })
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s within %s", what, patience)
		}
	}
}

func replace(t *testing.T, path, text string) {
	t.Helper()
	next := path + ".next"
	if err := errors.Join(os.WriteFile(next, []byte(text), 0o700), os.Rename(next, path)); err != nil {
		t.Fatal(err)
	}
}

func TestARenamedFileIsSeenOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "catena-stage-core")
	replace(t, path, "one")
	w := watch(t, path, "one", nil)
	w.want(t)
	replace(t, path, "two")
	w.want(t, "two")
	replace(t, path, "two") // another file, the same content
	w.want(t, "two")
	replace(t, path, "one")
	w.want(t, "two", "one")
}

func TestAFileThatIsBeingWrittenIsLeftAlone(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells")
	}
	path := filepath.Join(t.TempDir(), "catena-stage-core")
	replace(t, path, "one")
	w := watch(t, path, "one", nil)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("tw"); err != nil {
		t.Fatal(err)
	}
	w.want(t)
	if _, err := f.WriteString("o"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	w.want(t, "two")
}

// A copy that was broken off is no program, however long it lies there.
func TestATruncatedProgramIsAProblem(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "catena-stage-core")
	replace(t, path, "one")
	w := watch(t, path, "one", nil)
	replace(t, path, string(whole[:len(whole)*2/3]))
	eventually(t, "problem", func() bool { _, problems, _ := w.told(); return len(problems) > 0 })
	w.want(t)
	if _, problems, _ := w.told(); len(problems) != 1 {
		t.Errorf("problems: %q", problems)
	}
	replace(t, path, string(whole))
	w.want(t, string(whole))
}

func TestAFolderThatIsDeletedAndMadeAnew(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "plugins")
	path := filepath.Join(dir, "catena-stage-core")
	fill := func(text string) {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		replace(t, path, text)
	}
	fill("one")
	w := watch(t, path, "one", nil)
	w.quiet(t)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	w.want(t)
	fill("one")
	w.want(t)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	fill("two")
	w.want(t, "two")
}

// What fails is not tried again before the file changes; what was refused for now is.
func TestAContentIsTriedOnceUnlessItIsToBeTriedAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "catena-stage-core")
	replace(t, path, "one")
	busy := 3
	w := watch(t, path, "one", func(content string) Result {
		if content == "busy" && busy > 1 {
			busy--
			return Again
		}
		return Done // it has failed: the old one runs
	})
	replace(t, path, "bad")
	w.want(t, "bad")
	replace(t, path, "bad")
	w.want(t, "bad")
	replace(t, path, "busy")
	w.want(t, "bad", "busy", "busy", "busy")
	replace(t, path, "bad")
	w.want(t, "bad", "busy", "busy", "busy", "bad")
}

// What is not locked is tried again when the lock has changed, and nothing else is.
func TestAContentThatIsNotLockedWaitsForTheLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "catena-stage-core")
	replace(t, path, "one")
	w := watch(t, path, "one", func(content string) Result {
		if content == "unlocked" {
			return NotLocked
		}
		return Done
	})
	lock := func(state string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lock = state
	}
	replace(t, path, "bad")
	w.want(t, "bad")
	lock("another")
	w.want(t, "bad")
	replace(t, path, "unlocked")
	w.want(t, "bad", "unlocked")
	lock("a third")
	w.want(t, "bad", "unlocked", "unlocked")
}
