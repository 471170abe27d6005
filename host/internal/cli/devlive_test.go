package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// output is what a command that goes on has printed.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// program writes a program whose process becomes this binary as the stage "one". Its notes
// are those of a run of its own.
func (l *life) program(t *testing.T, dir, run string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	source := fmt.Sprintf(`package main

import (
	"os"
	"syscall"
)

func main() {
	_ = os.Setenv(%q, %q)
	panic(syscall.Exec(%q, os.Args, os.Environ()))
}
`, envLife, "one:"+l.notes+"."+run, self)
	l.source(t, dir, source)
}

// source writes a program all at once, as it is looked at all the time. Only the first is
// written together with its module.
func (l *life) source(t *testing.T, dir, text string) {
	t.Helper()
	next, module := filepath.Join(l.dir, "next.go"), filepath.Join(dir, "go.mod")
	_, err := os.Stat(module)
	if errors.Is(err, os.ErrNotExist) {
		err = os.WriteFile(module, []byte("module example.com/one\n\ngo 1.24\n"), 0o600)
	}
	err = errors.Join(err, os.WriteFile(next, []byte(text), 0o600), os.Rename(next, filepath.Join(dir, "main.go")))
	if err != nil {
		t.Fatal(err)
	}
}

// dev runs "catena dev" on a directory, and ends it before the host.
func (l *life) dev(t *testing.T, dir string) *output {
	t.Helper()
	said := &output{}
	root := rootCommand("unknown")
	root.SetOut(said)
	root.SetErr(said)
	root.SetArgs([]string{"dev", dir, "--data-dir", filepath.Join(l.dir, "data")})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("catena dev: %v", err)
		}
	})
	return said
}

// ran counts how often the stage has been prepared in a run of the program.
func (l *life) ran(run string) int {
	notes, _ := os.ReadFile(l.notes + "." + run)
	return strings.Count(string(notes), "prepared\n")
}

// noStage is a program that says that it is the stage "one".
const noStage = `package main

import "os"

func main() {
	if len(os.Args) > 1 {
		_, _ = os.Stdout.WriteString("{\"name\":\"one\"}")
		return
	}
	os.Exit(3)
}
`

// A stage of a running host is built and swapped in, and again when its source changes.
// What does not build or does not become ready changes nothing.
func TestDevSwapsIntoARunningHost(t *testing.T) {
	t.Parallel()
	l := newLife(t, "one")
	l.chain(t, "", "one")
	l.start(t)
	l.untilSignal(t, "HasBeenReady")
	_, before := l.order(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/one\n\ngo 1.24\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.program(t, dir, "first")
	said := l.dev(t, dir)
	changed := func(run string) {
		t.Helper()
		var now map[string]string
		l.until(t, run+" program in the chain", func() bool { _, now = l.order(t); return l.ran(run) > 0 && now["one"] != before["one"] })
		want := "swapped " + before["one"] + " → " + now["one"] + ", ready after "
		l.until(t, want, func() bool { return strings.Contains(said.String(), want) })
		before = now
	}
	changed("first")
	l.program(t, dir, "second")
	changed("second")

	l.source(t, dir, "package main\n\nfunc main() { nonsense() }\n")
	l.until(t, "error of the compiler", func() bool { return strings.Contains(said.String(), "./main.go:3:15: undefined: nonsense") })
	l.source(t, dir, noStage)
	l.until(t, "error of the swap", func() bool { return strings.Contains(said.String(), "goes on with its old generation") })
	if _, now := l.order(t); now["one"] != before["one"] {
		t.Errorf("a program that is no stage is in the chain:\n%s", said)
	}

	l.program(t, dir, "third")
	changed("third")
	// The host starts what dev has built when that dies, once it is not on probation any more.
	if out, err := l.command(t, "swap", "one", "--promote"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := syscall.Kill(l.status(t).Stages[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	l.until(t, "restart", func() bool { return l.ran("third") == 2 && l.status(t).Stages[0].State == "serving" })
	if said := said.String(); strings.Count(said, "one: built in ") != 4 {
		t.Errorf("catena dev has said\n%s", said)
	}
}

// There has to be a host to swap into.
func TestDevWithoutAHost(t *testing.T) {
	t.Parallel()
	_, _, err := run(t, "dev", t.TempDir(), "--data-dir", t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "no host runs on the data directory") {
		t.Errorf("got %v", err)
	}
}
