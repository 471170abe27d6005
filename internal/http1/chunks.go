package http1

import (
	"bytes"
	"errors"
	"fmt"
)

// maxLine is the longest line that begins a chunk.
const maxLine = 4 << 10

// Chunks decodes a chunked body, piece by piece. Its zero value is before the first chunk.
type Chunks struct {
	left  int64 // of the present chunk
	tail  int   // bytes of the line break after it that are still to come
	ended bool
}

// Ended reports whether the last chunk has been read: trailers follow.
func (d *Chunks) Ended() bool { return d.ended }

// Between reports whether all chunks that have begun are complete.
func (d *Chunks) Between() bool { return d.left == 0 && d.tail == 0 }

// Decode moves the bytes of the body that are in src to dst, so that what came as many chunks goes out at once. It
// returns how many these are and how many bytes of src it has used; what is left of src is the beginning of a line,
// unless dst is full or the body has ended. Both may begin at the same byte.
func (d *Chunks) Decode(dst, src []byte) (n, used int, err error) {
	for used < len(src) && !d.ended {
		switch {
		case d.left > 0:
			m := copy(dst[n:], src[used:used+int(min(d.left, int64(len(src)-used)))])
			if m == 0 {
				return n, used, nil
			}
			n, used = n+m, used+m
			if d.left -= int64(m); d.left == 0 {
				d.tail = 2
			}
		case d.tail > 0:
			if src[used] != "\r\n"[2-d.tail] {
				return n, used, errors.New("chunk without an end")
			}
			d.tail--
			used++
		default:
			size, length, err := chunkSize(src[used:])
			if err != nil || length == 0 {
				return n, used, err
			}
			used += length
			d.left, d.ended = size, size == 0
		}
	}
	return n, used, nil
}

// Whole returns how many bytes of src Decode takes that end with the end of a chunk, or with that of src within the
// chunk that Decode is in. The chunk that follows has size bytes with its line and its end, of which src has only a
// part, or 0 if its line has not come. An error is left to Decode.
func (d *Chunks) Whole(src []byte) (whole int, size int64) {
	if rest := d.left + int64(d.tail); d.left > 0 {
		whole = int(min(rest+2, int64(len(src))))
	} else {
		whole = int(min(rest, int64(len(src))))
	}
	for ended := d.ended; !ended && whole < len(src); {
		n, length, err := chunkSize(src[whole:])
		switch {
		case err != nil:
			return len(src), 0
		case length == 0:
			return whole, 0
		case n == 0:
			ended, size = true, int64(length)
		default:
			size = int64(length) + n + 2
		}
		if size > int64(len(src)-whole) {
			return whole, size
		}
		whole += int(size)
	}
	return whole, 0
}

// chunkSize parses the line at the start of p that begins a chunk, and returns the
// length of the line, 0 if its end is not in p.
func chunkSize(p []byte) (size int64, length int, err error) {
	i := 0
	for ; i < len(p); i++ {
		digit, ok := hexDigit(p[i])
		if !ok {
			break
		}
		if i == 15 {
			return 0, 0, errors.New("chunk too large")
		}
		size = size<<4 | int64(digit)
	}
	end := bytes.IndexByte(p, '\n')
	if end < 0 {
		if len(p) > maxLine {
			return 0, 0, errors.New("the line that begins a chunk is too long")
		}
		return 0, 0, nil
	}
	// What may follow the digits: blanks, and an extension after a semicolon.
	rest := bytes.TrimLeft(p[i:end], " \t")
	if i == 0 || end >= maxLine || !bytes.HasSuffix(rest, []byte("\r")) || len(rest) > 1 && rest[0] != ';' ||
		bytes.IndexByte(rest, '\r') != len(rest)-1 {
		return 0, 0, fmt.Errorf("invalid line at the beginning of a chunk: %.20q", p[:end])
	}
	return size, end + 1, nil
}

func hexDigit(b byte) (value byte, ok bool) {
	switch {
	case b >= '0' && b <= '9':
		return b - '0', true
	case b >= 'a' && b <= 'f':
		return b - 'a' + 10, true
	case b >= 'A' && b <= 'F':
		return b - 'A' + 10, true
	}
	return 0, false
}
