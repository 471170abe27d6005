package front

// stackOfRequest is more than the filters, the relay and the writers of a response have on the stack, in bytes.
const stackOfRequest = 16 << 10

// reserveStack has the goroutine that calls it take at once the stack that a request needs. It begins with a few KiB,
// and doubles them when they are used up, which means to go through all frames that there are: where the relay is,
// below all filters, that took a tenth of the host's CPU for a small GET.
//
//go:noinline
func reserveStack() {
	var room [stackOfRequest]byte
	keep(&room)
}

// keep keeps the compiler from leaving out what is unused.
//
//go:noinline
func keep(*[stackOfRequest]byte) {}
