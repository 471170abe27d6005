package frames

import (
	"bytes"
	"encoding/binary"
)

// lengthSize is that of the length before each event.
const lengthSize = 4

func lengthProtobuf(b []byte, most int) (int, error) {
	if len(b) < lengthSize {
		return 0, nil
	}
	n := int(binary.BigEndian.Uint32(b)) + lengthSize
	if n > most {
		return 0, ErrTooLong
	}
	if n > len(b) {
		return 0, nil
	}
	return n, nil
}

// The fields of metav1.WatchEvent, runtime.RawExtension, runtime.Unknown, metav1.ObjectMeta and of the entries of a map
// that matter here, and that of the metadata in all of Kubernetes' objects. Their numbers are in the generated.proto of
// their packages.
const (
	eventType             = 1
	eventObject           = 2
	extensionRaw          = 1
	unknownRaw            = 2
	unknownContentCoding  = 3
	objectMetadata        = 1
	metadataRevision      = 6
	metadataAnnotations   = 12
	entryKey, entryValue  = 1, 2
	wireVarint, wireBytes = 0, 2
	wireFixed64           = 1
	wireFixed32           = 5
)

// protobufMagic begins each object.
var protobufMagic = []byte("k8s\x00")

func lookProtobuf(frame []byte) (event Event, ok bool) {
	if len(frame) < lengthSize {
		return Event{}, false
	}
	var object []byte
	m := message(frame[lengthSize:])
	for m != nil {
		var number int
		var value []byte
		if number, value, m, ok = m.next(); !ok {
			return Event{}, false
		}
		switch number {
		case eventType:
			event.Kind = kinds[string(value)]
		case eventObject:
			object = message(value).field(extensionRaw)
		}
	}
	if event.Kind == Other || event.Kind == Error {
		return event, true
	}
	raw, found := bytes.CutPrefix(object, protobufMagic)
	if !found || len(message(raw).field(unknownContentCoding)) > 0 {
		return event, true
	}
	metadata := message(message(message(raw).field(unknownRaw)).field(objectMetadata))
	event.Revision = decimal(metadata.field(metadataRevision))
	event.InitialEnd = event.Kind == Bookmark && metadata.endsInitial()
	return event, true
}

// endsInitial reports whether metadata have the annotation.
func (m message) endsInitial() bool {
	for m != nil {
		number, value, rest, ok := m.next()
		if !ok {
			return false
		}
		if entry := message(value); number == metadataAnnotations && string(entry.field(entryKey)) == initialEnd {
			return string(entry.field(entryValue)) == "true"
		}
		m = rest
	}
	return false
}

// message is an encoded message, nil if there is no more of it.
type message []byte

// field returns the bytes of the first field with a number, or nil.
func (m message) field(wanted int) []byte {
	for m != nil {
		number, value, rest, ok := m.next()
		if !ok {
			return nil
		}
		if number == wanted {
			return value
		}
		m = rest
	}
	return nil
}

// next returns the first field and what follows. The value is nil if it is a number.
func (m message) next() (number int, value []byte, rest message, ok bool) {
	if len(m) == 0 {
		return 0, nil, nil, true
	}
	tag, n := binary.Uvarint(m)
	if n <= 0 {
		return 0, nil, nil, false
	}
	m = m[n:]
	var skip uint64
	switch tag & 7 {
	case wireVarint:
		if _, n = binary.Uvarint(m); n <= 0 {
			return 0, nil, nil, false
		}
		skip = uint64(n)
	case wireFixed64:
		skip = 8
	case wireFixed32:
		skip = 4
	case wireBytes:
		length, n := binary.Uvarint(m)
		if n <= 0 || length > uint64(len(m)-n) {
			return 0, nil, nil, false
		}
		m = m[n:]
		value, skip = m[:length], length
	default:
		return 0, nil, nil, false
	}
	if skip > uint64(len(m)) {
		return 0, nil, nil, false
	}
	if rest = m[skip:]; len(rest) == 0 {
		rest = nil
	}
	return int(tag >> 3), value, rest, true
}
