package frames

import "bytes"

// lengthJSON is that of a line: Kubernetes writes an event without a line break in it, and one at its end.
func lengthJSON(b []byte, scanned int) int {
	if i := bytes.IndexByte(b[scanned:], '\n'); i >= 0 {
		return scanned + i + 1
	}
	return 0
}

// lookJSON reads {"type":T,"object":{"metadata":{"resourceVersion":R,"annotations":{…}},…}}, with keys in any order. It
// looks at no more than it needs, if the type comes first.
func lookJSON(frame []byte) (event Event, ok bool) {
	fields, object := newFields(frame, 0), -1
	for fields.next() {
		switch string(fields.key) {
		case "type":
			event.Kind = kinds[string(fields.text())]
		case "object":
			if event.Kind != Other {
				return lookObject(frame, fields.at, event), true
			}
			object = fields.at
		}
		if !fields.skip() {
			return Event{}, false
		}
	}
	if object < 0 || event.Kind == Other {
		return event, fields.ended
	}
	return lookObject(frame, object, event), fields.ended
}

// lookObject completes an event with the metadata of its object.
func lookObject(b []byte, at int, event Event) Event {
	for object := newFields(b, at); object.next(); {
		if string(object.key) != "metadata" {
			if !object.skip() {
				break
			}
			continue
		}
		for metadata := newFields(b, object.at); metadata.next(); {
			switch string(metadata.key) {
			case "resourceVersion":
				event.Revision = decimal(metadata.text())
			case "annotations":
				event.InitialEnd = event.Kind == Bookmark && endsInitial(b, metadata.at)
			}
			if event.Revision != 0 && event.Kind != Bookmark || !metadata.skip() {
				break
			}
		}
		break
	}
	return event
}

func endsInitial(b []byte, at int) bool {
	for annotations := newFields(b, at); annotations.next(); {
		if string(annotations.key) == initialEnd {
			return string(annotations.text()) == "true"
		}
		if !annotations.skip() {
			break
		}
	}
	return false
}

// fields goes through the fields of an object.
type fields struct {
	b     []byte
	at    int // where the value begins, once next has returned true; where it ends, once it has been skipped
	key   []byte
	ended bool // the object has ended as it has to
}

// newFields returns the fields of the value that begins at a place; none if it is no object.
func newFields(b []byte, at int) fields {
	if at = skipSpace(b, at); at < len(b) && b[at] == '{' {
		return fields{b: b, at: at}
	}
	return fields{b: b, at: len(b)}
}

// next goes to the next field. The value of the one before must have been skipped.
func (f *fields) next() bool {
	i := skipSpace(f.b, f.at)
	if i >= len(f.b) {
		return false
	}
	if c := f.b[i]; c == '{' || c == ',' {
		i = skipSpace(f.b, i+1)
	}
	if i >= len(f.b) || f.b[i] != '"' {
		f.ended = i < len(f.b) && f.b[i] == '}'
		return false
	}
	end := skipString(f.b, i)
	if end < 0 {
		return false
	}
	f.key = f.b[i+1 : end-1]
	if i = skipSpace(f.b, end); i >= len(f.b) || f.b[i] != ':' {
		return false
	}
	f.at = skipSpace(f.b, i+1)
	return f.at < len(f.b)
}

// skip goes to the end of the value.
func (f *fields) skip() bool {
	end := skipValue(f.b, f.at)
	if end < 0 {
		f.at = len(f.b)
		return false
	}
	f.at = end
	return true
}

// text returns the value if it is a string, as it is written; nil if it is another value.
func (f *fields) text() []byte {
	if f.b[f.at] != '"' {
		return nil
	}
	end := skipString(f.b, f.at)
	if end < 0 {
		return nil
	}
	return f.b[f.at+1 : end-1]
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n') {
		i++
	}
	return i
}

// skipString returns where the string ends that begins at i, behind its quote; -1 if it does not.
func skipString(b []byte, i int) int {
	for i++; i < len(b); {
		quote := bytes.IndexByte(b[i:], '"')
		if quote < 0 {
			return -1
		}
		escape := bytes.IndexByte(b[i:i+quote], '\\')
		if escape < 0 {
			return i + quote + 1
		}
		i += escape + len(`\"`)
	}
	return -1
}

// skipValue returns where the value ends that begins at i; -1 if it does not.
func skipValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			if i = skipString(b, i); i < 0 {
				return -1
			}
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			if depth == 0 {
				return -1
			}
			depth--
			i++
		case ',', ':', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return -1
			}
			i++
			continue
		default: // a number or a word
			if n := bytes.IndexAny(b[i:], ",:]} \t\r\n\""); n < 0 {
				i = len(b)
			} else {
				i += n
			}
		}
		if depth == 0 {
			return i
		}
	}
	return -1
}

// decimal returns the number that text is, written as Kubernetes writes revisions; 0 if it is another text.
func decimal(text []byte) (n uint64) {
	const most = 19 // digits, that fit
	if len(text) == 0 || len(text) > most || text[0] == '0' {
		return 0
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0
		}
		n = n*10 + uint64(c-'0')
	}
	return n
}
