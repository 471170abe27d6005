package process

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/host/internal/process/processtest"
)

// program is the beginning of an ELF program for this machine or, with another
// machine number, for that one.
func program(t *testing.T, machine byte) []byte {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Skip("no /proc")
	}
	head := self[:64:64]
	if machine != 0 {
		head[18], head[19] = machine, 0
	}
	return head
}

// write writes a file, which may be a program.
func write(t testing.TB, path string, data []byte, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := processtest.WriteProgram(path, data); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCheck(t *testing.T) {
	t.Parallel()
	good := program(t, 0)
	foreign, name := byte(183), "arm64"
	if runtime.GOARCH == "arm64" {
		foreign, name = 62, "amd64"
	}
	for _, tc := range []struct {
		name, want string
		make       func(t *testing.T, path string)
	}{
		{"program", "", func(t *testing.T, p string) { write(t, p, good, 0o755) }},
		{"script", "", func(t *testing.T, p string) { write(t, p, []byte("#!/usr/bin/env python3\n"), 0o755) }},
		{"link", "", func(t *testing.T, p string) { link(t, write(t, p+".real", good, 0o755), p) }},
		{"missing", "no such file", func(*testing.T, string) {}},
		{"dangling link", "is a link to /nowhere/at/all, which does not exist", func(t *testing.T, p string) { link(t, "/nowhere/at/all", p) }},
		{"directory", "is a directory", func(t *testing.T, p string) { os.Mkdir(p, 0o755) }},
		{"pipe", "is no regular file", func(t *testing.T, p string) { syscall.Mkfifo(p, 0o755) }},
		{"not executable", "is not executable; run chmod +x", func(t *testing.T, p string) { write(t, p, good, 0o644) }},
		{"writable by all", "can be changed by every user of this machine; run chmod o-w", func(t *testing.T, p string) { write(t, p, good, 0o757) }},
		{"directory writable by all", "can be changed by every user of this machine; run chmod o-w", func(t *testing.T, p string) {
			write(t, p, good, 0o755)
			os.Chmod(filepath.Dir(p), 0o777|os.ModeSticky)
		}},
		{"directory above writable by all", "is below a directory that can be changed by every user", func(t *testing.T, p string) {
			write(t, p, good, 0o755)
			os.Chmod(filepath.Dir(filepath.Dir(p)), 0o777)
		}},
		{"link into a directory writable by all", "can be changed by every user of this machine; run chmod o-w", func(t *testing.T, p string) {
			target := write(t, filepath.Join(t.TempDir(), "open", "x"), good, 0o755)
			os.Chmod(filepath.Dir(target), 0o777)
			link(t, target, p)
		}},
		{"other architecture", "is built for " + name + ", this machine is " + runtime.GOARCH, func(t *testing.T, p string) {
			write(t, p, program(t, foreign), 0o755)
		}},
		{"object file", "is an ELF file, but no program", func(t *testing.T, p string) {
			head := program(t, 0)
			head[16] = 1
			write(t, p, head, 0o755)
		}},
		{"text", "neither ELF nor a script", func(t *testing.T, p string) { write(t, p, []byte("hello, this is no program"), 0o755) }},
		{"empty", "copied only in part", func(t *testing.T, p string) { write(t, p, nil, 0o755) }},
		{"cut", "copied only in part", func(t *testing.T, p string) { write(t, p, good[:10], 0o755) }},
		{"of another user", "belongs to user 12345", func(t *testing.T, p string) { chown(t, write(t, p, good, 0o755)) }},
		{"directory of another user", "/inner belongs to user 12345", func(t *testing.T, p string) {
			write(t, p, good, 0o755)
			chown(t, filepath.Dir(p))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "outer", "inner", "catena-stage-x")
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			tc.make(t, path)
			b, err := Check(path)
			if tc.want == "" {
				if err != nil || b != (Binary{Name: "x", Path: path}) {
					t.Errorf("got %v, %v", b, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func chown(t *testing.T, path string) {
	t.Helper()
	if err := os.Chown(path, 12345, 12345); err != nil {
		t.Skip("only root can give files away")
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, second, empty := filepath.Join(dir, "first"), filepath.Join(dir, "second"), filepath.Join(dir, "empty")
	good := program(t, 0)
	write(t, filepath.Join(first, "catena-stage-a"), good, 0o755)
	write(t, filepath.Join(first, "README"), nil, 0o644)
	write(t, filepath.Join(second, "catena-stage-a"), good, 0o755)
	write(t, filepath.Join(second, "catena-stage-b"), good, 0o755)
	write(t, filepath.Join(second, "catena-stage-c"), good, 0o644)
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	dirs := []string{first, filepath.Join(dir, "none"), empty, second}
	for _, tc := range []struct{ stage, path, want string }{
		{stage: "a", path: filepath.Join(first, "catena-stage-a")},
		{stage: "b", path: filepath.Join(second, "catena-stage-b")},
		{stage: "c", want: `stage "c": plugin binary ` + second + "/catena-stage-c: is not executable"},
		{stage: "d", want: `stage "d": no binary catena-stage-d in ` + first + " (holds a), nor in " + dir + "/none (no such directory), nor in " + empty + " (holds no plugin), nor in " + second + " (holds a, b, c)"},
		{stage: "../a", want: "no file can have the name"},
		{stage: "", want: "no file can have the name"},
	} {
		b, err := Find(dirs, tc.stage)
		if tc.want != "" {
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) && !strings.Contains(err.Error(), "no file can") {
				t.Errorf("%s: got %v, want %q", tc.stage, err, tc.want)
			}
		} else if err != nil || b.Path != tc.path || b.Name != tc.stage {
			t.Errorf("%s: got %v, %v", tc.stage, b, err)
		}
	}
	if _, err := Find(nil, "a"); err == nil || !strings.Contains(err.Error(), "pluginDirs is empty") {
		t.Errorf("no directories: %v", err)
	}
}

func TestScan(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	good := program(t, 0)
	write(t, filepath.Join(first, "catena-stage-b"), good, 0o755)
	write(t, filepath.Join(first, "catena-stage-a"), []byte("abc"), 0o755)
	write(t, filepath.Join(second, "catena-stage-b"), good, 0o755)
	found, err := Scan([]string{first, filepath.Join(dir, "none"), second})
	if err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("a directory that is missing: %v", err)
	}
	var got [][]string
	for _, f := range found {
		refused := ""
		if f.Refused != nil {
			refused = f.Refused.Error()
		}
		got = append(got, []string{f.Name, f.Path, f.SHA256[:4], refused})
	}
	sum, _ := Digest(filepath.Join(first, "catena-stage-b"))
	want := [][]string{
		{"a", first + "/catena-stage-a", "ba78", "plugin binary " + first + "/catena-stage-a: is no executable file (neither ELF nor a script); it may have been copied only in part"},
		{"b", first + "/catena-stage-b", sum[:4], ""},
		{"b", second + "/catena-stage-b", sum[:4], "is shadowed by " + first + "/catena-stage-b"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
