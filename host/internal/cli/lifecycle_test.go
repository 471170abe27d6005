package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files")

// patienceOfTests bounds whatever these tests wait for.
const patienceOfTests = 60 * time.Second

// life is a host in a process of its own, with one stage that is this test binary.
type life struct {
	dir, plugins, config, notes string
	cmd                         *exec.Cmd
	ended                       chan struct{}
	before                      func(*exec.Cmd) // if it is not nil, gets the host before it is started

	mu   sync.Mutex
	log  []map[string]any // what the host has logged
	rest []string         // what else it has written to standard error
}

// startLife starts the host with a configuration of the stage and more lines.
func startLife(t *testing.T, stageConfig string, more ...string) *life {
	t.Helper()
	l := newLife(t, "life")
	text := "apiVersion: catena.dev/v1alpha1\nkind: HostConfiguration\npluginDirs: [" + l.plugins + "]\n" +
		"log: {format: json, stageLevel: debug}\n" + strings.Join(more, "\n") + "\nstages:\n  life:\n" +
		"    lock: off\n    isolation: off\n    env: {" + envLife + ": 'life:" + l.notes + "'}\n    config: {" + stageConfig + "}\n"
	if len(more) == 0 {
		text += "apiserver: {" + lifeFlags + "}\n"
	}
	if err := os.WriteFile(l.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l.start(t)
	return l
}

// newLife is a host that has not been started, with plugins for stages.
func newLife(t *testing.T, stages ...string) *life {
	t.Helper()
	l := &life{dir: t.TempDir(), plugins: pluginDir(t, stages...), ended: make(chan struct{})}
	l.config, l.notes = filepath.Join(l.dir, "catena.yaml"), filepath.Join(l.dir, "notes")
	return l
}

func (l *life) start(t *testing.T, args ...string) {
	t.Helper()
	l.cmd = exec.Command(os.Args[0], append([]string{"serve", "--config", l.config, "--data-dir", filepath.Join(l.dir, "data")}, args...)...)
	l.cmd.Env = append(os.Environ(), envCommand+"=1")
	if l.before != nil {
		l.before(l.cmd)
	}
	stderr, err := l.cmd.StderrPipe()
	if err == nil {
		err = l.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go l.read(bufio.NewScanner(stderr))
	t.Cleanup(func() {
		_ = l.cmd.Process.Kill()
		<-l.ended
	})
}

const lifeFlags = "bind-address: 127.0.0.1, secure-port: 0, shutdown-send-retry-after: true"

func (l *life) read(lines *bufio.Scanner) {
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		entry := map[string]any{}
		err := json.Unmarshal(lines.Bytes(), &entry)
		l.mu.Lock()
		if err == nil {
			l.log = append(l.log, entry)
		} else {
			l.rest = append(l.rest, lines.Text())
		}
		l.mu.Unlock()
	}
	_ = l.cmd.Wait()
	close(l.ended)
}

// logged are the values of a field in the entries of the log with that module and message.
func (l *life) logged(module, message, field string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var values []string
	for _, e := range l.log {
		if e["@module"] == module && e["@message"] == message {
			values = append(values, fmt.Sprint(e[field]))
		}
	}
	return values
}

func (l *life) signals() []string { return l.logged("catena", "lifecycle signal", "signal") }

func (l *life) noted() string {
	b, _ := os.ReadFile(l.notes)
	return string(b)
}

func (l *life) dump() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for _, e := range l.log {
		fmt.Fprintln(&b, e)
	}
	return b.String() + strings.Join(l.rest, "\n")
}

// until waits for something that the host comes to.
func (l *life) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patienceOfTests); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s; notes:\n%s\nlog:\n%s", what, l.noted(), l.dump())
		}
	}
}

func (l *life) untilSignal(t *testing.T, name string) {
	t.Helper()
	l.until(t, name, func() bool { return slices.Contains(l.signals(), name) })
}

func (l *life) kill(t *testing.T, signals ...syscall.Signal) {
	t.Helper()
	for _, s := range signals {
		if err := l.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
	}
}

// untilEnd waits for the ends of the host and of its stage.
func (l *life) untilEnd(t *testing.T) {
	t.Helper()
	l.until(t, "end of the host", func() bool {
		select {
		case <-l.ended:
			return true
		default:
			return false
		}
	})
	l.until(t, "end of the stage", func() bool { return len(l.processes()) == 0 })
}

// processes are those of the stage that there still are.
func (l *life) processes() []int {
	files, _ := filepath.Glob(l.notes + ".*.pid")
	var alive []int
	for _, file := range files {
		b, _ := os.ReadFile(file)
		pid, err := strconv.Atoi(string(b))
		if err == nil && isAlive(pid) {
			alive = append(alive, pid)
		}
	}
	return alive
}

// isAlive reports whether a process exists and is no zombie.
func isAlive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

// transcript is what a person wants to read of the run. The delay and the hooks end in
// any order.
func (l *life) transcript() string {
	var b strings.Builder
	b.WriteString("-- signals of the server --\n")
	signals := l.signals()
	if i := slices.Index(signals, "PreShutdownHooksStopped"); i > 0 && signals[i-1] == "AfterShutdownDelayDuration" {
		signals[i-1], signals[i] = signals[i], signals[i-1]
	}
	for _, name := range signals {
		fmt.Fprintln(&b, name)
	}
	fmt.Fprintf(&b, "-- what the stage has noted --\n%s", l.noted())
	fmt.Fprintf(&b, "-- end --\nexit code %d\n", l.cmd.ProcessState.ExitCode())
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.rest {
		if strings.HasPrefix(line, "catena: ") {
			fmt.Fprintln(&b, line)
		}
	}
	return b.String()
}

func (l *life) golden(t *testing.T) {
	t.Helper()
	got := l.transcript()
	if l.cmd.ProcessState.ExitCode() == 130 { // the stage may have been told to stop, or have noticed
		got = strings.Replace(got, "destroyed\n", "", 1)
	}
	name := regexp.MustCompile(`[^a-z]+`).ReplaceAllString(strings.ToLower(strings.TrimPrefix(t.Name(), "TestLife/")), "-")
	file := filepath.Join("testdata", "life", name+".txt")
	if *update {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\n%s\nwant:\n%s\nlog:\n%s", file, got, want, l.dump())
	}
	// The stage has been told of the same, as far as it was there to hear it.
	told := l.logged("catena.life", "the server has come to a lifecycle signal", "signal")
	if signals := l.signals(); len(told) > len(signals) || !slices.Equal(told, signals[:len(told)]) {
		t.Errorf("the stage was told of %v, the signals were %v", told, signals)
	}
}

// Each subtest has its transcript in testdata/life.
func TestLife(t *testing.T) {
	const patient = "apiserver: {" + lifeFlags + ", shutdown-delay-duration: 1h}"
	for name, run := range map[string]func(t *testing.T) *life{
		"planned stop": func(t *testing.T) *life {
			l := startLife(t, "", "apiserver: {"+lifeFlags+", shutdown-delay-duration: 500ms}")
			l.untilSignal(t, "HasBeenReady")
			l.kill(t, syscall.SIGTERM)
			return l
		},
		"stop during start": func(t *testing.T) *life {
			l := startLife(t, "hang: new")
			l.until(t, "call of New", func() bool { return l.noted() != "" })
			l.kill(t, syscall.SIGTERM)
			return l
		},
		"stop before ready": func(t *testing.T) *life {
			l := startLife(t, "hang: hook", "apiserver: {"+lifeFlags+", shutdown-delay-duration: 500ms}")
			l.untilSignal(t, "MuxAndDiscoveryComplete")
			l.until(t, "hook", func() bool { return strings.Contains(l.noted(), "post-start hook") })
			l.kill(t, syscall.SIGINT)
			return l
		},
		"failed hook": func(t *testing.T) *life {
			return startLife(t, "fail: hook", "apiserver: {"+lifeFlags+", shutdown-delay-duration: 500ms}")
		},
		"failed pre-shutdown hook": func(t *testing.T) *life {
			l := startLife(t, "fail: end", "apiserver: {"+lifeFlags+", shutdown-delay-duration: 500ms}")
			l.untilSignal(t, "HasBeenReady")
			l.kill(t, syscall.SIGTERM)
			return l
		},
		"second signal": func(t *testing.T) *life {
			l := startLife(t, "", patient)
			l.untilSignal(t, "HasBeenReady")
			l.kill(t, syscall.SIGTERM)
			l.untilSignal(t, "PreShutdownHooksStopped")
			l.kill(t, syscall.SIGTERM)
			return l
		},
		"third signal": func(t *testing.T) *life {
			l := startLife(t, "hang: end", patient) // or the second signal may be enough
			l.untilSignal(t, "HasBeenReady")
			l.kill(t, syscall.SIGTERM)
			l.untilSignal(t, "PreShutdownHooksStopped")
			l.kill(t, syscall.SIGINT, syscall.SIGTERM) // two, since one that is pending is not sent again
			return l
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := run(t)
			l.untilEnd(t)
			l.golden(t)
		})
	}
}

// A start that is interrupted says so in one line, without errors, and leaves no empty
// directory of sockets behind.
func TestInterruptedStart(t *testing.T) {
	t.Parallel()
	l := startLife(t, "hang: new")
	l.until(t, "call of New", func() bool { return l.noted() != "" })
	l.kill(t, syscall.SIGTERM)
	l.untilEnd(t)
	if got := l.logged("catena", "interrupted before the server was ready", "signal"); len(got) != 1 || got[0] != "terminated" {
		t.Errorf("logged %q", got)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.log {
		if e["@level"] == "error" {
			t.Errorf("logged %v", e)
		}
	}
	if len(l.rest) > 0 {
		t.Errorf("printed %q", l.rest)
	}
	if left, err := os.ReadDir(filepath.Join(l.dir, "data", "run")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of sockets is still there: %v, %v", left, err)
	}
}

// A post-start hook that fails ends the server, and is the only thing that is reported at
// WARN or above.
func TestFailedHookIsOneError(t *testing.T) {
	t.Parallel()
	l := startLife(t, "fail: hook")
	l.untilEnd(t)
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := slices.Clone(l.rest)
	for _, e := range l.log {
		if e["@module"] == "catena.etcd" { // which says it when the disk is slow
			continue
		}
		if e["@level"] == "error" || e["@level"] == "warn" {
			lines = append(lines, fmt.Sprint(e))
		}
	}
	if len(lines) != 1 || !strings.Contains(lines[0], `post-start hook "begin"`) || !strings.Contains(lines[0], "broken") {
		t.Errorf("reported %q", lines)
	}
}
