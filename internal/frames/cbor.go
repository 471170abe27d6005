package frames

import "encoding/binary"

// The major types of items; see RFC 8949.
const (
	majorBytes = iota + 2
	majorText
	majorArray
	majorMap
	majorTag
	majorOther
)

const (
	// argument1 to argument8 announce an argument of as many bytes, and indefinite an item that ends with itemBreak.
	argument1, argument8 = 24, 27
	indefinite           = 31
	itemBreak            = 0xff
	// maxDepth is how deep items may lie in items.
	maxDepth = 256
)

func lengthCBOR(b []byte) (int, error) {
	d := decoder{b: b}
	switch {
	case d.skip(maxDepth):
		return d.at, nil
	case d.malformed:
		return 0, ErrFormat
	}
	return 0, nil
}

// lookCBOR reads what lookJSON does. The order of keys is any.
func lookCBOR(frame []byte) (event Event, ok bool) {
	d, object := decoder{b: frame}, -1
	looked, ok := d.fields(func(key []byte) (done bool) {
		switch string(key) {
		case "type":
			event.Kind = kinds[string(d.text())]
		case "object":
			object = d.at
			if event.Kind != Other {
				d.look(&event)
				return true
			}
		}
		return false
	})
	if ok && !looked && object >= 0 && event.Kind != Other {
		d.at = object
		d.look(&event)
	}
	return event, ok
}

// look completes an event with the metadata of the object that comes.
func (d *decoder) look(event *Event) {
	_, _ = d.fields(func(key []byte) (done bool) {
		if string(key) != "metadata" {
			return false
		}
		_, _ = d.fields(func(key []byte) (done bool) {
			switch string(key) {
			case "resourceVersion":
				event.Revision = decimal(d.text())
				return event.Kind != Bookmark
			case "annotations":
				_, _ = d.fields(func(key []byte) (done bool) {
					event.InitialEnd = event.InitialEnd || string(key) == initialEnd && string(d.text()) == "true"
					return false
				})
			}
			return false
		})
		return true
	})
}

// decoder reads items. What it reads may end anywhere.
type decoder struct {
	b         []byte
	at        int
	malformed bool // and not only at its end
}

// head reads the head of an item, past its tags.
func (d *decoder) head() (major int, argument uint64, open, ok bool) {
	for {
		if d.at >= len(d.b) {
			return 0, 0, false, false
		}
		major, argument = int(d.b[d.at]>>5), uint64(d.b[d.at]&31)
		d.at++
		switch {
		case argument < argument1:
		case argument <= argument8:
			size := 1 << (argument - argument1)
			if len(d.b)-d.at < size {
				d.at = len(d.b)
				return 0, 0, false, false
			}
			var bytes [8]byte
			copy(bytes[len(bytes)-size:], d.b[d.at:])
			argument = binary.BigEndian.Uint64(bytes[:])
			d.at += size
		case argument == indefinite && major >= majorBytes && major <= majorMap:
			open = true
		default: // a break out of place, or what is reserved
			d.malformed = true
			return 0, 0, false, false
		}
		if major != majorTag {
			return major, argument, open, true
		}
	}
}

// ends reports whether the break of an open item comes, and passes it.
func (d *decoder) ends() bool {
	if d.at < len(d.b) && d.b[d.at] == itemBreak {
		d.at++
		return true
	}
	return false
}

// skip passes an item.
func (d *decoder) skip(depth int) bool {
	if depth == 0 {
		d.malformed = true
		return false
	}
	major, n, open, ok := d.head()
	if !ok {
		return false
	}
	switch major {
	case majorBytes, majorText:
		if !open {
			return d.pass(n)
		}
	case majorArray:
	case majorMap:
		n = 2 * min(n, uint64(len(d.b))) // there cannot be more
	default:
		return true
	}
	for i := uint64(0); open || i < n; i++ {
		if open && d.ends() {
			break
		}
		if !d.skip(depth - 1) {
			return false
		}
	}
	return true
}

// pass passes n bytes.
func (d *decoder) pass(n uint64) bool {
	if n > uint64(len(d.b)-d.at) {
		d.at = len(d.b)
		return false
	}
	d.at += int(n)
	return true
}

// text reads a string, which Kubernetes writes as bytes, too. It is nil if something else comes, which is passed.
func (d *decoder) text() []byte {
	start := d.at
	major, n, open, ok := d.head()
	from := d.at
	if ok && !open && (major == majorBytes || major == majorText) && d.pass(n) {
		return d.b[from:d.at]
	}
	d.at = start
	d.skip(maxDepth)
	return nil
}

// fields calls visit with each key of a map, whose value comes then, until that returns true, as fields does then.
// Visit may read the value. What is no map has no keys.
func (d *decoder) fields(visit func(key []byte) (done bool)) (done, ok bool) {
	start := d.at
	major, n, open, ok := d.head()
	if !ok || major != majorMap {
		d.at = start
		return false, ok && d.skip(maxDepth)
	}
	for i := uint64(0); open || i < n; i++ {
		if open && d.ends() {
			break
		}
		key, value := d.text(), d.at
		if value >= len(d.b) || d.malformed {
			return false, false
		}
		if visit(key) {
			return true, true
		}
		if d.at == value && !d.skip(maxDepth) {
			return false, false
		}
	}
	return false, true
}
