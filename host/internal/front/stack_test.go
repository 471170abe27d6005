package front

import (
	"testing"
	"unsafe"
)

// After reserveStack, the stack of a goroutine is not moved before it holds what it is reserved for.
func TestReserveStack(t *testing.T) {
	t.Parallel()
	for name, reserve := range map[string]func(){"reserved": reserveStack, "not reserved": func() {}} {
		moved := make(chan bool)
		go func() {
			reserve()
			var local byte
			before := uintptr(unsafe.Pointer(&local))
			fill(stackOfRequest - 1<<10)
			moved <- uintptr(unsafe.Pointer(&local)) != before
		}()
		if m := <-moved; m != (name == "not reserved") {
			t.Errorf("%s: moved %v", name, m)
		}
	}
}

// fill uses about n bytes of the stack.
//
//go:noinline
func fill(n int) byte {
	var frame [256]byte
	if n > len(frame) {
		frame[n%len(frame)] = fill(n - len(frame) - 64)
	}
	return frame[n%len(frame)]
}
