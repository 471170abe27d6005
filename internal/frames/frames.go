// Package frames splits the body of a watch into its events and reads which revision each of them is of. It decodes no
// object: it walks to metadata.resourceVersion and stops there.
//
// The encodings are those of Kubernetes' watches (k8s.io/apimachinery/pkg/runtime/serializer): JSON, an event in a
// line; protobuf, an event after its length in four bytes; CBOR, an event in an item.
package frames

import (
	"errors"
	"iter"
	"strings"
)

// Encoding is how events are written.
type Encoding int

// The encodings. None stands for a body that is not known to consist of events.
const (
	None Encoding = iota
	JSON
	Protobuf
	CBOR
)

// EncodingOf returns the encoding of a response to a watch, by its Content-Type.
func EncodingOf(contentType string) Encoding {
	mediaType, _, _ := strings.Cut(contentType, ";")
	switch strings.ToLower(strings.TrimSpace(mediaType)) {
	case "application/json":
		return JSON
	case "application/vnd.kubernetes.protobuf":
		return Protobuf
	case "application/cbor-seq":
		return CBOR
	}
	return None
}

// Kind is what an event says.
type Kind int

// The kinds of events. Other is everything that is not known.
const (
	Other Kind = iota
	Added
	Modified
	Deleted
	Bookmark
	Error
)

var kinds = map[string]Kind{"ADDED": Added, "MODIFIED": Modified, "DELETED": Deleted, "BOOKMARK": Bookmark, "ERROR": Error}

// String returns the kind as it is written.
func (k Kind) String() string {
	for name, kind := range kinds {
		if kind == k {
			return name
		}
	}
	return "OTHER"
}

// Event is what a frame says.
type Event struct {
	Kind Kind
	// Revision is that of the object. It is 0 if the event has none, as an error, or if the frame is not
	// what Kubernetes writes.
	Revision uint64
	// InitialEnd is set for the bookmark that ends the initial events.
	InitialEnd bool
}

// initialEnd is the annotation of the bookmark that ends the initial events.
const initialEnd = "k8s.io/initial-events-end"

// Look returns what a whole frame says.
func (e Encoding) Look(frame []byte) Event {
	var event Event
	ok := false
	switch e {
	case JSON:
		event, ok = lookJSON(frame)
	case Protobuf:
		event, ok = lookProtobuf(frame)
	case CBOR:
		event, ok = lookCBOR(frame)
	}
	switch {
	case !ok:
		return Event{}
	case event.Kind == Other || event.Kind == Error: // an error has the metadata of a list
		return Event{Kind: event.Kind}
	}
	event.InitialEnd = event.InitialEnd && event.Kind == Bookmark
	return event
}

// Errors of a Splitter.
var (
	ErrTooLong = errors.New("a frame is too long")
	ErrFormat  = errors.New("not a frame")
)

// Splitter makes whole frames of a body that comes in pieces.
type Splitter struct {
	Encoding Encoding
	// Max is how long a frame may be, in bytes.
	Max int

	kept    []byte // what has not been returned, in memory of its own
	scanned int    // how much of kept is known to have no end of a frame
	err     error
}

// smallBuffer is the size of a buffer that is kept while nothing is in it.
const smallBuffer = 4 << 10

// Add returns the frames that are whole with the next piece of the body. They are valid until Add is called again, for
// as long as the piece is, and parts of it where it has all of them. What is left, or has not been asked for, is kept.
func (s *Splitter) Add(piece []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		data, own := piece, len(s.kept) > 0
		if own {
			s.kept = append(s.kept, piece...)
			data = s.kept
		}
		at, scanned := 0, s.scanned
		for s.err == nil && at < len(data) {
			var n int
			if n, s.err = s.length(data[at:], scanned); n == 0 {
				scanned = len(data) - at
				break
			}
			at, scanned = at+n, 0
			if !yield(data[at-n : at]) {
				break
			}
		}
		s.scanned = scanned
		switch {
		case at == len(data) && cap(s.kept) > smallBuffer:
			s.kept = nil
		case at == len(data):
			s.kept = s.kept[:0]
		case own:
			s.kept = data[at:]
		default:
			s.kept = append(s.kept, data[at:]...)
		}
	}
}

// length returns the length of the frame at the beginning of b, 0 if it is not whole, or malformed.
func (s *Splitter) length(b []byte, scanned int) (n int, err error) {
	switch s.Encoding {
	case JSON:
		n = lengthJSON(b, scanned)
	case Protobuf:
		n, err = lengthProtobuf(b, s.Max)
	case CBOR:
		n, err = lengthCBOR(b)
	default:
		err = ErrFormat
	}
	if err == nil && (n > s.Max || n == 0 && len(b) > s.Max) {
		return 0, ErrTooLong
	}
	return n, err
}

// Rest returns what has come and was not returned: the beginning of a frame, and all that comes after an error.
func (s *Splitter) Rest() []byte { return s.kept }

// Err returns why there are no more frames.
func (s *Splitter) Err() error { return s.err }
