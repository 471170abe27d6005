package process

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// StartError is why a stage could not be started.
type StartError struct {
	Stage string
	// Path of the binary.
	Path string
	// Err is what happened and what to do about it, in one line.
	Err error
	// Log holds the last lines of the process' output, at most ten.
	Log []string
}

func (e *StartError) Error() string {
	return fmt.Sprintf("stage %q: %s: %v%s", e.Stage, e.Path, e.Err, formatLog(e.Log))
}

func (e *StartError) Unwrap() error { return e.Err }

// ExitError is how the process of a stage ended.
type ExitError struct {
	Stage string
	PID   int
	// State is never nil.
	State *os.ProcessState
	// Killed is set if the host killed the process.
	Killed bool
	// Why is the reason for which the host, or the kernel, killed it, if there is more to say.
	Why string
	// Limit is the name of the limit for which the kernel killed it, of package cgroup; empty
	// if it did not.
	Limit string
	// After is how long the process ran.
	After time.Duration
	// Log holds the last lines of the process' output, or the first lines of its panic, at most ten.
	Log []string
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("stage %q: process %d %s after %s%s",
		e.Stage, e.PID, e.Reason(), e.After.Round(time.Millisecond), formatLog(e.Log))
}

// Reason returns how the process ended, without the stage's name and log.
func (e *ExitError) Reason() string {
	if ws, ok := e.State.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		if ws.Signal() == syscall.SIGKILL && e.Limit != "" {
			return "was killed by the kernel: " + e.Why
		}
		if ws.Signal() == syscall.SIGKILL && !e.Killed {
			return "was killed by SIGKILL, not by this host (look for the kernel's out-of-memory killer in dmesg)"
		}
		switch {
		case e.Killed && e.Why != "":
			return "was killed by this host: " + e.Why
		case e.Killed:
			return "was killed by this host"
		}
		return fmt.Sprintf("was ended by signal %d (%s)", int(ws.Signal()), ws.Signal())
	}
	return fmt.Sprintf("exited with status %d", e.State.ExitCode())
}

func formatLog(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return "; the last of its output:\n    " + strings.Join(lines, "\n    ")
}

// CallError is a failed call of a stage's method. It keeps the code that the stage,
// or gRPC, gave, for google.golang.org/grpc/status.Code.
type CallError struct {
	Stage  string
	Method string
	Status *status.Status
	cause  error
}

func (e *CallError) Error() string {
	if e.Status.Code() == codes.Unknown {
		return fmt.Sprintf("stage %q: %s: %s", e.Stage, e.Method, e.Status.Message())
	}
	return fmt.Sprintf("stage %q: %s: %s (%s)", e.Stage, e.Method, e.Status.Message(), e.Status.Code())
}

// GRPCStatus returns the status that the stage, or gRPC, gave.
func (e *CallError) GRPCStatus() *status.Status { return e.Status }

// Unwrap returns the error of the call's context if that has ended.
func (e *CallError) Unwrap() error { return e.cause }
