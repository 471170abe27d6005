package process

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// contents returns the digest of a plugin.
func contents(t *testing.T, path string) string {
	t.Helper()
	c, err := ReadContents(path)
	if err != nil {
		t.Fatal(err)
	}
	return c.SHA256
}

func TestContentsOfAProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := write(t, filepath.Join(dir, "catena-stage-x"), program(t, 0), 0o755)
	want, err := Digest(path)
	if err != nil || contents(t, path) != want {
		t.Errorf("contents are %s, the digest of the file is %s (%v)", contents(t, path), want, err)
	}
	write(t, filepath.Join(dir, "lib.so"), []byte("x"), 0o644)
	if contents(t, path) != want {
		t.Error("a file beside a program counts")
	}
}

// Each file of a script's directory counts: content, name and kind.
func TestContentsOfAScript(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := write(t, filepath.Join(dir, "catena-stage-x"), []byte("#!/usr/bin/env -S python3 -E\nimport y\n"), 0o755)
	write(t, filepath.Join(dir, "y.py"), []byte("1"), 0o644)
	write(t, filepath.Join(dir, "lib", "z.py"), []byte("2"), 0o644)
	first := contents(t, path)
	for what, change := range map[string]func() (undo func()){
		"the script": func() func() {
			write(t, path, []byte("#!/usr/bin/env -S python3 -E\nimport z\n"), 0o755)
			return func() { write(t, path, []byte("#!/usr/bin/env -S python3 -E\nimport y\n"), 0o755) }
		},
		"a file": func() func() {
			write(t, filepath.Join(dir, "lib", "z.py"), []byte("3"), 0o644)
			return func() { write(t, filepath.Join(dir, "lib", "z.py"), []byte("2"), 0o644) }
		},
		"a new file": func() func() {
			return remove(t, write(t, filepath.Join(dir, "lib", "__pycache__", "z.pyc"), nil, 0o644))
		},
		"a link": func() func() {
			link(t, "y.py", filepath.Join(dir, "w.py"))
			return remove(t, filepath.Join(dir, "w.py"))
		},
		"a name": func() func() {
			from, to := filepath.Join(dir, "y.py"), filepath.Join(dir, "yy.py")
			rename(t, from, to)
			return func() { rename(t, to, from) }
		},
	} {
		undo := change()
		if contents(t, path) == first {
			t.Errorf("%s does not count", what)
		}
		undo()
		if contents(t, path) != first {
			t.Errorf("%s: contents are not what they were", what)
		}
	}
	write(t, filepath.Join(dir, "catena-stage-other"), []byte("#!/bin/sh\n"), 0o755)
	write(t, path+SignatureSuffix, []byte("signature"), 0o644)
	if contents(t, path) != first {
		t.Error("another plugin, or the signature, counts")
	}
}

// A link in a plugin directory stands for the files where the script is.
func TestContentsOfALinkedScript(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := write(t, filepath.Join(dir, "real", "catena-stage-x"), []byte("#!/bin/sh\n"), 0o755)
	write(t, filepath.Join(dir, "real", "y"), []byte("1"), 0o644)
	want := contents(t, path)
	plugin := filepath.Join(dir, "plugins", "catena-stage-x")
	write(t, filepath.Join(dir, "plugins", "z"), []byte("2"), 0o644)
	link(t, path, plugin)
	if got := contents(t, plugin); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestContentsThatAreUncovered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := write(t, filepath.Join(dir, "catena-stage-x"), []byte("#! /usr/bin/env python3\n"), 0o755)
	write(t, filepath.Join(dir, "y"), nil, 0o644)
	link(t, "y", filepath.Join(dir, "inside"))
	link(t, "/usr/bin/python3", filepath.Join(dir, "outside"))
	c, err := ReadContents(path)
	want := []string{"the interpreter /usr/bin/env python3", "/usr/bin/python3, to which outside links"}
	if err != nil || !c.Script || !slices.Equal(c.Uncovered, want) {
		t.Errorf("got %q, %v", c.Uncovered, err)
	}
}

func TestContentsThatCannotBe(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(t *testing.T, path string){
		"is no regular file; a script needs a directory of its own": func(t *testing.T, path string) {
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"can be changed by every user": func(t *testing.T, path string) { write(t, path, nil, 0o666) },
	} {
		dir := t.TempDir()
		path := write(t, filepath.Join(dir, "catena-stage-x"), []byte("#!/bin/sh\n"), 0o755)
		spoil(t, filepath.Join(dir, "y"))
		if _, err := ReadContents(path); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "y")+" "+want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// What is not approved is not executed, and what is approved is what is executed.
func TestStartAsksForApproval(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	marker := filepath.Join(dir, "executed")
	path := write(t, filepath.Join(dir, "plugins", "catena-stage-x"), []byte("#!/bin/sh\n: >'"+marker+"'\n"), 0o755)
	l, err := NewListener(dir, "x")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	want := contents(t, path)
	refusal := errors.New("it is not locked")
	for _, approval := range []error{refusal, nil} {
		asked := ""
		_, err = Start(t.Context(), Spec{Stage: "x", Binary: path, Listener: l, RuntimeDir: dir, Approve: func(c Contents) error {
			asked = c.SHA256
			return approval
		}})
		_, statErr := os.Stat(marker)
		if asked != want || errors.Is(err, refusal) != (approval != nil) || (statErr == nil) != (approval == nil) {
			t.Errorf("approval %v: asked for %q, error %v, executed: %t", approval, asked, err, statErr == nil)
		}
	}
}

func remove(t *testing.T, path string) func() {
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}
