package httpserver

import (
	"io"
	"sync"
	"sync/atomic"
)

// expectation is that of a request whose body the host sends when it is asked to ("Expect: 100-continue").
type expectation struct {
	// expects is set before the handler is called.
	expects bool
	// mayAsk is set until the host is asked or the final response begins; asked when it has been asked.
	mayAsk, asked atomic.Bool
	// mu is held while the host is asked, so that a response does not begin in the middle.
	mu sync.Mutex
}

func (e *expectation) begin() {
	e.expects = true
	e.mayAsk.Store(true)
}

// ask asks the host for the body if it waits for that.
func (e *expectation) ask(host io.Writer) {
	if !e.mayAsk.Load() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mayAsk.Load() {
		e.asked.Store(true)
		_, _ = io.WriteString(host, "HTTP/1.1 100 Continue\r\n\r\n") // the body fails if this does
		e.mayAsk.Store(false)                                        // cease waits until then
	}
}

// cease is called when the host must no more be asked.
func (e *expectation) cease() {
	if e.mayAsk.Load() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.mayAsk.Store(false)
	}
}

// answered is called when the handler itself asks. Who reads the body at the same time, as a proxy does, reads what
// comes.
func (e *expectation) answered() {
	e.asked.Store(true)
	e.cease()
}

// sends reports whether the host sends the body: it does not wait to be asked, or has been.
func (e *expectation) sends() bool { return !e.expects || e.asked.Load() }
