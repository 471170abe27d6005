//go:build !linux

package isolation

import (
	"context"
	"errors"
	"os"
)

var errSystem = errors.New("not available on this system")

// Dispatch does nothing on this system.
func Dispatch() {}

// HideMemory does nothing on this system.
func HideMemory() error { return nil }

// Detect finds that nothing is available on this system.
func Detect(context.Context) *Machine { return &Machine{Namespaces: errSystem, Filter: errSystem} }

// Users are not available on this system.
type Users struct{}

// OpenUsers returns nil.
func OpenUsers(string) (*Users, error) { return nil, nil }

// Stage returns "".
func (u *Users) Stage(int) string { return "" }

// Launcher is not available on this system.
type Launcher struct{}

// Prepare returns nil, and an error if isolation is required.
func (m *Machine) Prepare(p Process, _ []string) (*Launcher, error) {
	if p.Mode == Required {
		return nil, refusal(p.Stage, []error{errSystem})
	}
	return nil, nil
}

// Means returns none.
func (l *Launcher) Means() []string { return nil }

// Missing returns nothing.
func (l *Launcher) Missing() []error { return nil }

// CanRead returns true.
func (l *Launcher) CanRead(string) bool { return true }

// UID is the user of this process.
func (l *Launcher) UID() int { return os.Geteuid() }

// Wrap changes nothing.
func (l *Launcher) Wrap(path string, argv []string, _ int, _ *os.ProcAttr) (string, []string, error) {
	return path, argv, nil
}

// Wait does nothing.
func (l *Launcher) Wait() error { return nil }

// Begin does nothing.
func (l *Launcher) Begin() {}

// End does nothing.
func (l *Launcher) End() {}

// Close does nothing.
func (l *Launcher) Close() {}
