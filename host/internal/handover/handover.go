// Package handover lets another program take the place of a running host: in the same process, by execve(2), so that
// whatever supervises the process notices nothing, and with the socket that the host listens on, so that no connection is
// refused. A program that does not come up hands back to the one before.
package handover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

// variable is how a program gets to know that it takes the place of another one. It is taken out of the environment at once.
const variable = "CATENA_HANDOVER"

// onlyCheck is its value if the program is only to check whether it could.
const onlyCheck = "check"

// Change is why the program is replaced.
type Change struct {
	// By is who has asked for it, At when.
	By   string    `json:"by"`
	At   time.Time `json:"at"`
	What string    `json:"what"`
	// From is the version of the program before.
	From string `json:"from"`
	// Problem is why the program has its place back; empty on the way there.
	Problem string `json:"problem,omitempty"`
}

// Handover is what a host hands over. It is an error, since it is how the host ends.
type Handover struct {
	Change
	// Program is the file of the other program.
	Program string
	// Listener is a duplicate of the socket that the host listens on. Connections wait in its queue meanwhile.
	Listener *os.File
	// Arguments and Environment are those of the other program.
	Arguments, Environment []string
	// Self is the present program, to go back to.
	Self *Program
}

func (h *Handover) Error() string { return "the host hands over to " + h.Program }

// state is the value of the variable.
type state struct {
	Change
	Listener     int    `json:"listener"`
	Previous     int    `json:"previous"`
	PreviousPath string `json:"previousPath"`
	// Arguments are those of the program before.
	Arguments []string `json:"arguments"`
}

// Exec replaces the program, with the same arguments. It returns only if it could do neither that nor go on with the present one.
func (h *Handover) Exec() error {
	err := h.exec(func() string { return h.Program })
	back := *h
	back.Problem = err.Error()
	return errors.Join(err, back.exec(h.Self.executable))
}

func (h *Handover) exec(program func() string) error {
	value, err := json.Marshal(state{h.Change, int(h.Listener.Fd()), int(h.Self.file.Fd()), h.Self.path, h.Arguments})
	if err != nil {
		return err
	}
	if err := errors.Join(inherit(h.Listener), inherit(h.Self.file)); err != nil {
		return err
	}
	if err := execve(program(), h.Arguments, append(without(h.Environment), variable+"="+string(value))); err != nil {
		return fmt.Errorf("execute %s: %w", program(), err)
	}
	return nil
}

func without(environment []string) []string {
	return slices.DeleteFunc(slices.Clone(environment), func(v string) bool { return strings.HasPrefix(v, variable+"=") })
}

// CheckEnvironment is an environment in which a program only checks whether it could take over.
func CheckEnvironment() []string { return append(without(os.Environ()), variable+"="+onlyCheck) }

// Program is the program of this process, whatever its path names by now.
type Program struct {
	path string
	file *os.File
}

// Path is where it was when it was started.
func (p *Program) Path() string { return p.path }

// executable is its path if that still names it, and otherwise another one.
func (p *Program) executable() string {
	named, err := os.Stat(p.path)
	own, ownErr := p.file.Stat()
	if err != nil || ownErr != nil || !os.SameFile(named, own) {
		return pathOf(p.file)
	}
	return p.path
}

// Inherited is what a program has taken over.
type Inherited struct {
	Change
	// Self is this program.
	Self *Program
	// OnlyCheck reports whether it is not to serve, but to check whether it could.
	OnlyCheck bool

	listener  *os.File // nil if it takes the place of no other
	previous  *Program
	arguments []string // of the previous program
}

// FromEnvironment returns what this program has taken over from another one in the same process. It works once in a process.
func FromEnvironment() (*Inherited, error) {
	value := os.Getenv(variable)
	if err := os.Unsetenv(variable); err != nil {
		return nil, err
	}
	self, err := thisProgram()
	if err != nil {
		return nil, err
	}
	i := &Inherited{Self: self, OnlyCheck: value == onlyCheck}
	if value == "" || i.OnlyCheck {
		return i, nil
	}
	var s state
	if err := json.Unmarshal([]byte(value), &s); err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err)
	}
	i.Change, i.arguments = s.Change, s.Arguments
	i.listener = os.NewFile(uintptr(s.Listener), "listener")
	i.previous = &Program{s.PreviousPath, os.NewFile(uintptr(s.Previous), s.PreviousPath)}
	return i, errors.Join(disinherit(i.listener), disinherit(i.previous.file))
}

func thisProgram() (*Program, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	file, err := openSelf(path)
	return &Program{path, file}, err
}

// TakesOver reports whether the program takes the place of another one, or has its place back.
func (i *Inherited) TakesOver() bool { return i.listener != nil }

// Listen returns the socket to serve on.
func (i *Inherited) Listen() (net.Listener, error) {
	l, err := net.FileListener(i.listener)
	if err != nil {
		return nil, fmt.Errorf("the socket of the program before: %w", err)
	}
	return l, nil
}

// Settle commits the takeover, once the program serves: there is no way back from here.
func (i *Inherited) Settle() {
	if i.previous != nil {
		_, _ = i.listener.Close(), i.previous.file.Close()
		i.previous = nil
	}
}

// Back gives the program before its place back, since this one has failed. It returns the error of that, or if it has
// failed as well.
func (i *Inherited) Back(failure error) error {
	if i.previous == nil || i.Problem != "" {
		return failure
	}
	h := &Handover{Change: i.Change, Listener: i.listener, Arguments: i.arguments, Environment: os.Environ(), Self: i.previous}
	h.Problem = failure.Error()
	return errors.Join(failure, h.exec(i.previous.executable))
}

type key struct{}

// NewContext returns a context that has what was taken over.
func NewContext(ctx context.Context, i *Inherited) context.Context {
	return context.WithValue(ctx, key{}, i)
}

// FromContext returns what was taken over: nothing if the context does not say.
func FromContext(ctx context.Context) *Inherited {
	if i, ok := ctx.Value(key{}).(*Inherited); ok {
		return i
	}
	return &Inherited{}
}
