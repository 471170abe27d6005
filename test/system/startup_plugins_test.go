package system

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// A file that must not be started as a plugin is refused with what to do about it.
func TestWrongBinary(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	path := filepath.Join(s.plugins, "catena-stage-hello")
	good := read(path)
	for name, tc := range map[string]struct {
		// spoil changes the plugin, whose path it gets.
		spoil func(path string) error
		want  []string // PATH stands for the path of the plugin, DIR for its directory
	}{
		"missing":        {os.Remove, []string{`stage "hello"`, "catena-stage-hello", "DIR"}},
		"not executable": {func(p string) error { return rewrite(p, read(p), 0o600) }, []string{"PATH: is not executable; run chmod +x PATH"}},
		"no program": {func(p string) error { return rewrite(p, []byte("just text\n"), 0o755) },
			[]string{"PATH", "no executable file"}},
		"directory": {func(p string) error { return errorsOf(os.Remove(p), os.Mkdir(p, 0o755)) },
			[]string{"PATH", "directory"}},
		"dangling link": {func(p string) error { return errorsOf(os.Remove(p), os.Symlink("/no/such/file", p)) },
			[]string{"PATH", "/no/such/file"}},
		"other architecture": {foreign, []string{"PATH", "is built for", runtime.GOARCH}},
		"world-writable": {func(p string) error { return errorsOf(rewrite(p, read(p), 0o755), os.Chmod(p, 0o777)) },
			[]string{"PATH", "every user", "chmod o-w PATH"}},
		"world-writable directory": {func(p string) error { return os.Chmod(filepath.Dir(p), 0o777) },
			[]string{"PATH", "every user", "chmod o-w DIR"}},
		"another user's": {func(p string) error { return errorsOf(rewrite(p, read(p), 0o755), os.Chown(p, 12345, -1)) },
			[]string{"PATH", "12345", "chown"}},
		"missing interpreter": {func(p string) error { return rewrite(p, []byte("#!/no/such/shell\n"), 0o755) },
			[]string{`stage "hello"`, "PATH", "interpreter"}},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "another user's" && os.Geteuid() != 0 {
				t.Skip("only root can give a file away")
			}
			err := tc.spoil(path)
			if errors.Is(err, syscall.EINVAL) {
				t.Skipf("the machine has no such user: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			s.refused(t, runCatena(t, s.args()...), places(tc.want, "PATH", path, "DIR", s.plugins)...)

			if err := errorsOf(os.RemoveAll(path), os.Chmod(s.plugins, 0o755), cluster.WriteProgram(path, good)); err != nil {
				t.Fatal(err)
			}
		})
	}
	s.works(t, s.args()...)
}

// A wrong digest means that the binary is not the one that the operator has checked.
func TestWrongDigest(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := runCatena(t, s.args("--set", "stages.hello.sha256="+strings.Repeat("0", 64))...)
	s.refused(t, r, `stage "hello"`, filepath.Join(s.plugins, "catena-stage-hello"), "sha256", strings.Repeat("0", 64))
	s.works(t, s.args()...)
}

// A program that is a plugin but does not behave like one is ended, with all that it
// has started, and the error shows what it has said.
func TestWrongPlugin(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for fault, want := range map[string][]string{
		"no plugin":      {"is no Catena stage", "usage: frobnicate FILE"},
		"silent end":     {"exited with status 0 before the handshake"},
		"garbage":        {"prints before its handshake", "starting up, please wait", "standard error"},
		"hang":           {"did not send its handshake within 1s", "startTimeout"},
		"exit":           {"exited with status 3 before the handshake", "reading the licence file", "the licence has expired"},
		"panic":          {"exited with status 2", "the stage does not like mornings"},
		"protocol":       {"speaks version 9 of the stage protocol, this host speaks 1", "matching SDK"},
		"no name":        {"reports no name"},
		"other name":     {`reports the name "somebody-else"`, `as "hello"`},
		"two handshakes": {"listens on tcp", "Unix socket"},
	} {
		t.Run(fault, func(t *testing.T) {
			timeout := (2 * startTime).String() // for which nobody must wait
			if fault == "hang" {
				timeout = "1s"
			}
			r := runCatena(t, s.args("--set", "stages.hello.env."+envFault+"="+fault, "--set", "stages.hello.startTimeout="+timeout)...)
			path := filepath.Join(s.plugins, "catena-stage-hello")
			if fault == "panic" { // whose stack is the last of its output
				r.stderr = strings.ReplaceAll(r.stderr, "goroutine ", "")
			}
			s.refused(t, r, append(want, `stage "hello": `+path+": ")...)
		})
	}
	s.works(t, s.args()...)
}

// A stage that does not like its configuration says so in its own words.
func TestWrongStageConfiguration(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.refused(t, runCatena(t, s.args("--set", "stages.hello.config.greetings=hi")...), `stage "hello"`, "greetings")
	s.works(t, s.args()...)
}

func places(want []string, pairs ...string) []string {
	r := strings.NewReplacer(pairs...)
	var out []string
	for _, w := range want {
		out = append(out, r.Replace(w))
	}
	return out
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func read(path string) []byte {
	b, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	return b
}

// rewrite replaces a file, which may be a link to one that is needed.
func rewrite(path string, content []byte, mode os.FileMode) error {
	return errorsOf(os.Remove(path), cluster.WriteProgram(path, content), os.Chmod(path, mode))
}

// foreign makes a program one of another architecture.
func foreign(path string) error {
	const machine, riscv = 18, 243 // of an ELF header
	content := read(path)
	content[machine], content[machine+1] = riscv, 0
	return rewrite(path, content, 0o755)
}
