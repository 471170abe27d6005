package documents

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// How long a command may take, what runs until it prints what the document says, and what a command that only looks does not show yet.
const (
	patience = 10 * time.Minute
	printed  = 2 * time.Minute
	shown    = time.Minute
)

// Session is somebody who types what a document shows.
type Session struct {
	// Dir is where the session begins, empty at first.
	Dir string
	// Stays reports whether a command goes on until Ctrl-C, which is typed when the next one comes in its terminal.
	Stays func(command string) bool

	env       []string
	terminals map[string]*terminal
}

// NewSession returns somebody who has the programs, and an empty directory. Servers have ports of their own.
func NewSession(t *testing.T, stays func(command string) bool) *Session {
	t.Helper()
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	return &Session{
		Dir: t.TempDir(), Stays: stays, terminals: map[string]*terminal{},
		env: append(cluster.Environ(), "PATH="+bin+":"+filepath.Join(bin, "tools")+":"+os.Getenv("PATH"),
			"KUBECACHEDIR="+t.TempDir(), "CATENA_APISERVER_SECURE_PORT=0"),
	}
}

// terminal is a shell: its directory and variables, and what runs in it.
type terminal struct {
	state   string // a script that sets them
	running *running
}

type running struct {
	cmd    *exec.Cmd
	ended  chan struct{}
	mu     sync.Mutex
	output bytes.Buffer
	seen   int // lines that were compared
}

func (r *running) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.output.Write(p)
}

func (r *running) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.output.String()
}

// lines are those that were printed since the last comparison, as a terminal shows them.
func (r *running) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := strings.TrimRight(r.output.String(), "\n")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")[r.seen:]
}

// Type types the commands of a document from a heading on up to another, and reports where the document is wrong. What stays ends with the test.
func (s *Session) Type(t *testing.T, file, from, to string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s.typed(t, filepath.Base(file), string(text), from, to)
}

// Output is what a command that stays has printed in a terminal so far.
func (s *Session) Output(terminal string) string {
	if term := s.terminals[terminal]; term != nil && term.running != nil {
		return term.running.text()
	}
	return ""
}

// Prepare types the commands of a text that is laid out as a document.
func (s *Session) Prepare(t *testing.T, text string) {
	t.Helper()
	s.typed(t, "preparation", text, "", "")
}

func (s *Session) typed(t *testing.T, name, text, from, to string) {
	t.Helper()
	steps, err := read(strings.NewReader(text), from, to)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	t.Cleanup(func() {
		for _, term := range s.terminals {
			term.interrupt()
		}
	})
	for _, step := range steps {
		if err := s.step(t, step); err != nil {
			t.Fatalf("%s:%d: %s: %v", name, step.line, step.command, err)
		}
	}
}

func (s *Session) step(t *testing.T, step step) error {
	t.Helper()
	term := s.terminals[step.terminal]
	if term == nil {
		term = &terminal{state: filepath.Join(t.TempDir(), "state")}
		if err := os.WriteFile(term.state, fmt.Appendf(nil, "cd '%s'\n", s.Dir), 0o600); err != nil {
			return err
		}
		s.terminals[step.terminal] = term
	}
	if step.command == "" {
		if term.running == nil {
			return errors.New("nothing runs in the terminal")
		}
		return term.running.prints(step.output)
	}
	term.interrupt()
	if s.Stays(step.command) {
		r, err := term.start(step.command, s.env)
		if err != nil {
			return err
		}
		term.running = r
		return r.prints(step.output)
	}
	err := term.run(step, s.env)
	for begun := time.Now(); err != nil && reads(step.command) && time.Since(begun) < shown; err = term.run(step, s.env) {
		time.Sleep(time.Second) // the time that a reader takes
	}
	return err
}

// run runs a command to its end, and compares. One of which no output is shown has to succeed.
func (term *terminal) run(step step, env []string) error {
	r, err := term.start(step.command, env)
	if err != nil {
		return err
	}
	select {
	case <-r.ended:
	case <-time.After(patience):
		r.interrupt()
		return fmt.Errorf("goes on after %s:\n%s", patience, r.text())
	}
	if len(step.output) == 0 {
		if !r.cmd.ProcessState.Success() {
			return fmt.Errorf("%s:\n%s", r.cmd.ProcessState, r.text())
		}
		return nil
	}
	if difference := differs(step.output, r.lines()); difference != "" {
		return fmt.Errorf("%s\n%s", difference, r.text())
	}
	return nil
}

// reads reports whether a command only looks, so that it can be typed again.
func reads(command string) bool {
	for _, prefix := range []string{"kubectl get ", "catena status", "catena explain ", "catena shadow report"} {
		if strings.HasPrefix(command, prefix) {
			return true
		}
	}
	return false
}

// start starts a command in the directory and with the variables that those before have left.
func (term *terminal) start(command string, env []string) (*running, error) {
	const script = `. "$STATE"
%s
code=$?
{ export -p; printf 'cd %%q\n' "$PWD"; } > "$STATE"
exit $code`
	r := &running{cmd: exec.Command("bash", "-c", fmt.Sprintf(script, command)), ended: make(chan struct{})}
	r.cmd.Env = append(slices.Clone(env), "STATE="+term.state)
	r.cmd.Stdout, r.cmd.Stderr = r, r
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(r.ended)
		_ = r.cmd.Wait()
	}()
	return r, nil
}

// prints waits until a command that runs has printed lines.
func (r *running) prints(want []string) error {
	var difference string
	for begun := time.Now(); time.Since(begun) < printed; time.Sleep(50 * time.Millisecond) {
		got := r.lines()
		if difference = lacks(want, got); difference == "" {
			r.mu.Lock()
			r.seen += len(got)
			r.mu.Unlock()
			return nil
		}
		select {
		case <-r.ended:
			return fmt.Errorf("%s\n%s: %s", difference, r.cmd.ProcessState, r.text())
		default:
		}
	}
	return fmt.Errorf("%s\n%s", difference, r.text())
}

// interrupt is Ctrl-C.
func (r *running) interrupt() {
	_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGINT)
	select {
	case <-r.ended:
	case <-time.After(patience):
		_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)
		<-r.ended
	}
}

// interrupt ends what runs in the terminal.
func (term *terminal) interrupt() {
	if term.running == nil {
		return
	}
	term.running.interrupt()
	term.running = nil
}
