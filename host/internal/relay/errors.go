package relay

import (
	"errors"
	"fmt"
	"net/http"
)

// Kind says what is known about a request that got no answer from its stage.
type Kind int

const (
	// Unavailable: the stage has not executed the request, or the request is safe.
	// The client may be told to try again.
	Unavailable Kind = iota + 1
	// Lost: the stage may have executed the request, and gave no answer. The
	// client must not be told to try again.
	Lost
	// BadAnswer: the stage answered with something that is not HTTP.
	BadAnswer
	// Canceled: the context of the request ended first.
	Canceled
	// BadRequest: the request itself is at fault: its body could not be read to
	// its end, or it cannot be expressed as HTTP/1.1.
	BadRequest
)

// String returns the kind in words.
func (k Kind) String() string {
	switch k {
	case Unavailable:
		return "unavailable"
	case Lost:
		return "lost"
	case BadAnswer:
		return "bad answer"
	case Canceled:
		return "canceled"
	case BadRequest:
		return "bad request"
	default:
		return fmt.Sprintf("Kind(%d)", int(k))
	}
}

// StageError is why a request got no answer from a stage. Nothing has been written
// to the client.
type StageError struct {
	Kind  Kind
	Stage string
	Err   error
}

// Error implements error.
func (e *StageError) Error() string {
	switch e.Kind {
	case Unavailable:
		return fmt.Sprintf("stage %q is not available: %v", e.Stage, e.Err)
	case Lost:
		return fmt.Sprintf("stage %q ended the connection without an answer: %v", e.Stage, e.Err)
	case BadAnswer:
		return fmt.Sprintf("stage %q gave a malformed answer: %v", e.Stage, e.Err)
	case Canceled:
		return fmt.Sprintf("stage %q had not answered: %v", e.Stage, e.Err)
	default:
		return fmt.Sprintf("request to stage %q: %v", e.Stage, e.Err)
	}
}

// Unwrap returns the cause.
func (e *StageError) Unwrap() error { return e.Err }

// WriteError is the plain answer to a StageError, for a [Config] that has no Error
// of its own. Only an answer to a request that may be sent again carries Retry-After.
func WriteError(w http.ResponseWriter, _ *http.Request, e *StageError) {
	code := http.StatusBadGateway
	switch e.Kind {
	case Unavailable:
		w.Header().Set("Retry-After", "1")
		code = http.StatusServiceUnavailable
	case Canceled:
		code = http.StatusGatewayTimeout
	case BadRequest:
		code = http.StatusBadRequest
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(e.Err, &tooLarge) {
			code = http.StatusRequestEntityTooLarge
		}
	}
	http.Error(w, e.Error(), code)
}

// Outcome is how a hop ended, as it is counted.
type Outcome string

const (
	Served      Outcome = "served"      // the answer was passed on to its end
	Called      Outcome = "called"      // the stage has asked the next one by a call, and its answer was passed on
	Declined    Outcome = "declined"    // the stage said "not mine"
	Upgraded    Outcome = "upgraded"    // the protocol was switched
	Replayed    Outcome = "replayed"    // sent again; the outcome of that follows
	NotReached  Outcome = "unavailable" // see Unavailable
	NoAnswer    Outcome = "lost"        // see Lost
	Malformed   Outcome = "bad_answer"  // see BadAnswer
	GivenUp     Outcome = "canceled"    // see Canceled; also in the middle of an answer
	Refused     Outcome = "bad_request" // see BadRequest
	Interrupted Outcome = "aborted"     // the stage broke off its answer
)

func (k Kind) outcome() Outcome {
	switch k {
	case Unavailable:
		return NotReached
	case Lost:
		return NoAnswer
	case BadAnswer:
		return Malformed
	case Canceled:
		return GivenUp
	default:
		return Refused
	}
}
