// Package panics keeps what runs for one stage, or for one connection, from ending the host when it panics.
//
// net/http does that for its handlers alone. Code that calls a handler in this process, or starts a goroutine for a
// stage or a connection, uses this package; test/rules has the list of goroutines that need not.
package panics

import (
	"fmt"
	"runtime/debug"
)

// Error is a panic.
type Error struct {
	Value any
	// Stack is that of the goroutine, as in a crash.
	Stack []byte
}

func (e *Error) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value if it is an error, such as http.ErrAbortHandler.
func (e *Error) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Recover is for defer: a panic of the function becomes its error, an *Error.
func Recover(err *error) {
	if p := recover(); p != nil {
		*err = &Error{Value: p, Stack: debug.Stack()}
	}
}

// Call calls f, and returns its error, or an *Error if it panics.
func Call(f func() error) (err error) {
	defer Recover(&err)
	return f()
}

// Contain returns a function that calls f, and then, if f has panicked, failed with an *Error.
func Contain(f func(), failed func(error)) func() {
	return func() {
		err := Call(func() error {
			f()
			return nil
		})
		if err != nil {
			failed(err)
		}
	}
}
