package handover

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// envProgram makes the test binary one of the programs that hand over to each other.
const envProgram = "HANDOVER_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(envProgram) == "" {
		os.Exit(m.Run())
	}
	if err := program(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

// program serves one connection, with its process and what it has taken over. The first one hands over to the program
// that its argument names, at once. One called "broken" fails.
func program(args []string) error {
	i, err := FromEnvironment()
	if err != nil {
		return err
	}
	if value, found := os.LookupEnv(variable); found {
		return fmt.Errorf("the environment still has %s", value)
	}
	if !i.TakesOver() {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		fmt.Println(l.Addr())
		file, err := l.(*net.TCPListener).File()
		if err != nil {
			return err
		}
		if err := l.Close(); err != nil {
			return err
		}
		h := &Handover{Change: Change{By: "jane", What: "upgrade", At: time.Now()}, Program: args[0], Listener: file, Arguments: os.Args, Environment: os.Environ(), Self: i.Self}
		return h.Exec()
	}
	if filepath.Base(i.Self.Path()) == "broken" {
		return i.Back(errors.New("it is broken"))
	}
	l, err := i.Listen()
	if err != nil {
		return err
	}
	i.Settle()
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	fmt.Fprintf(conn, "%d %s %s %s %v %q", os.Getpid(), i.By, i.What, filepath.Base(i.Self.Path()), os.Args[1:], i.Problem)
	return conn.Close()
}

// copyTo makes a program of the test binary.
func copyTo(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// A connection that comes while one program hands over to another is served by that one, in the same process; or by the first
// again if the other fails, or is no program, and also if the path of the first names another file by then.
func TestHandover(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	next, broken := copyTo(t, filepath.Join(dir, "next")), copyTo(t, filepath.Join(dir, "broken"))
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		program string
		removed bool
		want    string
	}{
		"the other one":            {program: next, want: "jane upgrade next [" + next + `] ""`},
		"one that fails":           {program: broken, want: "jane upgrade first [" + broken + `] "it is broken"`},
		"no program":               {program: text, want: "exec format error"},
		"fails, the first is gone": {program: broken, removed: true, want: `"it is broken"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := copyTo(t, filepath.Join(t.TempDir(), "first"))
			cmd := exec.CommandContext(t.Context(), first, c.program)
			cmd.Env = append(os.Environ(), envProgram+"=1")
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if c.removed {
				if err := os.Remove(first); err != nil {
					t.Fatal(err)
				}
			}
			var address string
			if _, err := fmt.Fscanln(out, &address); err != nil {
				t.Fatal(err, stderr.String())
			}
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(conn)
			if err != nil || !strings.HasPrefix(string(got), fmt.Sprint(cmd.Process.Pid, " ")) || !strings.Contains(string(got), c.want) {
				t.Errorf("served %q, %v; want process %d and %q\n%s", got, err, cmd.Process.Pid, c.want, &stderr)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v\n%s", err, &stderr)
			}
		})
	}
}
