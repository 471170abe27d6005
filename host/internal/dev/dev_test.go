package dev

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const source = `package main

import (
	_ "embed"
	"fmt"
	"os"

	"example.com/hello/greeting"
)

//go:embed text
var text string

func main() {
	if len(os.Args) > 1 {
		fmt.Println("{\"name\":\"hello\"}")
		return
	}
	fmt.Print(greeting.Text, text)
}
`

// module writes a program that consists of two packages and an embedded file.
func module(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/hello\n\ngo 1.24\n", "main.go": source, "text": "one\n",
		"greeting/greeting.go": "package greeting\n\nconst Text = `a`\n",
	} {
		put(t, filepath.Join(dir, name), text)
	}
	return dir
}

func put(t *testing.T, path, text string) {
	t.Helper()
	whole := filepath.Join(t.TempDir(), "whole") // a file that is just being written is none yet
	err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(whole, []byte(text), 0o600))
	if err == nil {
		err = os.Rename(whole, path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

const patience = 2 * time.Minute // the machine may have a lot to compile

// loop runs the loop, and returns what it says and what it swaps in.
func loop(t *testing.T, dir string) (said, swapped chan string) {
	t.Helper()
	said, swapped = make(chan string, 100), make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{
			Dirs: []string{dir}, Out: filepath.Join(t.TempDir(), "out"), Poll: 10 * time.Millisecond,
			Say: func(text string) { said <- text },
			Swap: func(_ context.Context, stage, binary string) (string, error) {
				// An isolated stage has a user of its own.
				if info, err := os.Stat(filepath.Dir(binary)); err != nil || info.Mode().Perm()&0o005 != 0o005 {
					t.Errorf("other users cannot read what is built: %v, %v", info.Mode(), err)
				}
				out, err := exec.Command(binary).Output()
				swapped <- stage + " " + string(out)
				return "swapped", err
			},
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return said, swapped
}

func next(t *testing.T, from chan string, want string) {
	t.Helper()
	select {
	case got := <-from:
		if !strings.Contains(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("not within %s: %s", patience, want)
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	dir := module(t)
	said, swapped := loop(t, dir)
	next(t, swapped, "hello aone\n")
	next(t, said, "hello: built in ")

	put(t, filepath.Join(dir, "greeting/greeting.go"), "package greeting\n\nconst Text = `bb`\n")
	next(t, swapped, "hello bbone\n")
	next(t, said, "hello: built in ")

	put(t, filepath.Join(dir, "text"), "second\n")
	next(t, swapped, "hello bbsecond\n")
	next(t, said, "hello: built in ")

	put(t, filepath.Join(dir, "greeting/more.go"), "package greeting\n\nvar _ = Txt\n")
	next(t, said, "greeting/more.go:3:9: undefined: Txt")
	if len(swapped) > 0 {
		t.Errorf("swapped in: %s", <-swapped)
	}

	put(t, filepath.Join(dir, "greeting/more.go"), "package greeting\n\nvar _ = Text\n")
	next(t, swapped, "hello bbsecond\n")
}

func TestRunOfWhatIsNoStage(t *testing.T) {
	t.Parallel()
	dir := module(t)
	put(t, filepath.Join(dir, "main.go"), "package main\n\nfunc main() {}\n")
	said, swapped := loop(t, dir)
	next(t, said, "is no stage")
	if len(swapped) > 0 {
		t.Errorf("swapped in: %s", <-swapped)
	}
}

func TestRunWithoutSources(t *testing.T) {
	t.Parallel()
	err := Run(t.Context(), Options{Dirs: []string{t.TempDir()}, Out: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "go list in ") {
		t.Errorf("got %v", err)
	}
}
