package relay

import (
	"errors"
	"fmt"
	"net/http"
)

// Kind is what is known about a request that got no response from its stage.
type Kind int

const (
	// Unavailable: the stage has not executed the request, or the request is safe.
	// The client may be told to try again.
	Unavailable Kind = iota + 1
	// Lost: the stage may have executed the request, and gave no response. The
	// client must not be told to try again.
	Lost
	// LostTwice: a safe request was sent again after it was lost, and was lost again. It may
	// be what ends the stage's process, so the client must not be told to try again.
	LostTwice
	// BadResponse: the stage sent something that is not HTTP.
	BadResponse
	// Canceled: the context of the request ended first.
	Canceled
	// BadRequest: the request itself is at fault: its body could not be read to
	// its end, or it cannot be expressed as HTTP/1.1.
	BadRequest
)

// kinds has the name of each kind, the outcome as which it is counted, and the message
// of its errors, with the stage and the cause.
var kinds = map[Kind]struct {
	name    string
	outcome Outcome
	message string
}{
	Unavailable: {"unavailable", NotReached, "stage %q is not available: %v"},
	Lost:        {"lost", NoResponse, "stage %q ended the connection without a response: %v"},
	LostTwice:   {"lost twice", NoResponse, "stage %q ended the connection without a response twice, perhaps because of this request: %v"},
	BadResponse: {"bad response", Malformed, "stage %q gave a malformed response: %v"},
	Canceled:    {"canceled", GivenUp, "stage %q had not responded: %v"},
	BadRequest:  {"bad request", Refused, "request to stage %q: %v"},
}

// String returns the kind in words.
func (k Kind) String() string {
	if known, ok := kinds[k]; ok {
		return known.name
	}
	return fmt.Sprintf("Kind(%d)", int(k))
}

// StageError is why a request got no response from a stage. Nothing has been written
// to the client.
type StageError struct {
	Kind  Kind
	Stage string
	Err   error
}

// Error implements error.
func (e *StageError) Error() string { return fmt.Sprintf(kinds[e.Kind].message, e.Stage, e.Err) }

// Unwrap returns the cause.
func (e *StageError) Unwrap() error { return e.Err }

// WriteError is the plain response to a StageError, for a [Config] that has no Error
// of its own. Only a response to a request that may be sent again carries Retry-After.
func WriteError(w http.ResponseWriter, _ *http.Request, e *StageError) {
	code := http.StatusBadGateway
	switch e.Kind {
	case Unavailable:
		w.Header().Set("Retry-After", "1")
		code = http.StatusServiceUnavailable
	case LostTwice:
		code = http.StatusInternalServerError
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
	Served      Outcome = "served"      // the response was passed on to its end
	Called      Outcome = "called"      // the stage has called the next one, and its response was passed on
	Declined    Outcome = "declined"    // the stage does not serve the request
	Upgraded    Outcome = "upgraded"    // the protocol was switched
	Replayed    Outcome = "replayed"    // sent again; the outcome of that follows
	Resumed     Outcome = "resumed"     // a watch has left the process, and goes on with another
	NotReached  Outcome = "unavailable" // see Unavailable
	NoResponse  Outcome = "lost"        // see Lost and LostTwice
	Malformed   Outcome = "bad_answer"  // see BadResponse
	GivenUp     Outcome = "canceled"    // see Canceled; also in the middle of a response
	Refused     Outcome = "bad_request" // see BadRequest
	Interrupted Outcome = "aborted"     // the stage broke off its response
)
