package http1

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"syscall"
	"testing"
)

// FuzzDecode checks that a chunked body is the same however it comes in pieces, and however little room there is for it.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("5\r\nhello\r\n0\r\n\r\n"), uint8(1), uint8(1))
	f.Add([]byte("3;a=b\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\nX: y\r\n\r\n"), uint8(4), uint8(3))
	f.Add([]byte("2\r\nabc\r\n"), uint8(2), uint8(7))
	f.Fuzz(func(t *testing.T, text []byte, piece, room uint8) {
		var whole Chunks
		want := make([]byte, len(text))
		n, used, wantErr := whole.Decode(want, text)

		var d Chunks
		var got, held []byte
		var err error
		rest := text
		for err == nil && !d.Ended() && len(rest) > 0 {
			m := min(len(rest), int(piece)+1)
			held, rest = append(held, rest[:m]...), rest[m:]
			for err == nil && !d.Ended() {
				var n, used int
				dst := make([]byte, int(room)+1)
				n, used, err = d.Decode(dst, held)
				got, held = append(got, dst[:n]...), held[used:]
				if n < len(dst) {
					break
				}
			}
		}
		if (err == nil) != (wantErr == nil) || d.Ended() != whole.Ended() {
			t.Fatalf("%v, ended %v; in one piece %v, %v", err, d.Ended(), wantErr, whole.Ended())
		}
		if err == nil && (!bytes.Equal(got, want[:n]) || len(held)+len(rest) != len(text)-used) {
			t.Errorf("%q, in one piece %q", got, want[:n])
		}
	})
}

// A receiver has a buffer only while there is something in it, keeps what is longer, and refuses what is too long.
func TestReceiver(t *testing.T) {
	t.Parallel()
	const size = 16
	var r Receiver
	sender := connect(t, &r, size)
	full := 0
	until := func(limit int) string {
		line, err := r.Until("\r\n", limit, func() error { full++; return nil })
		return fmt.Sprintf("%q %v", line, err)
	}
	long := bytes.Repeat([]byte("x"), 3*size-1)
	if _, err := sender.Write(append(append([]byte("a\r\n"), long...), "\r\nb\r\n"...)); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{`"a\r\n" <nil>`, fmt.Sprintf("%q <nil>", string(long)+"\r\n"), `"" too long`} {
		if got := until(3*size + 1 - 48*(i/2)); got != want {
			t.Errorf("line %d: %s, want %s", i, got, want)
		}
	}
	if full == 0 {
		t.Error("nobody was asked before more than a buffer was kept")
	}
	r.Discard(len(r.Buffered()))
	if r.buf != nil {
		t.Error("an empty receiver has a buffer")
	}
	_ = sender.Close()
	if err := r.Fill(); err != io.EOF || r.buf != nil {
		t.Errorf("at the end: %v, buffer %v", err, r.buf != nil)
	}
}

// connect makes r the receiver of a connection, and returns the other end.
func connect(t *testing.T, r *Receiver, size int) *net.UnixConn {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	other, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	socket, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = other.Close(), socket.Close() })
	if err := r.Init(socket.(*net.UnixConn), NewBuffers(size)); err != nil {
		t.Fatal(err)
	}
	return other.(*net.UnixConn)
}

// Exchange sends all that the socket takes at once and receives what follows, says what was not sent, and leaves the end of the connection to the next Fill.
func TestExchange(t *testing.T) {
	t.Parallel()
	t.Run("responses", func(t *testing.T) {
		t.Parallel()
		var r Receiver
		other := connect(t, &r, 1<<10)
		go func() {
			buf := make([]byte, 16)
			for {
				n, err := other.Read(buf)
				if err != nil {
					return
				}
				_, _ = other.Write(bytes.ToUpper(buf[:n]))
			}
		}()
		for i := range 1000 {
			p := fmt.Appendf(nil, "request %d", i)
			n, err := r.Exchange(p)
			if got := string(r.Buffered()); n != len(p) || err != nil || got != string(bytes.ToUpper(p)) {
				t.Fatalf("%d, %v, %q", n, err, got)
			}
			r.Discard(len(r.Buffered()))
		}
	})
	t.Run("closed before", func(t *testing.T) {
		t.Parallel()
		var r Receiver
		_ = connect(t, &r, 16).Close()
		if n, err := r.Exchange([]byte("request")); n != 0 || !errors.Is(err, syscall.EPIPE) {
			t.Errorf("%d, %v", n, err)
		}
	})
	t.Run("closed after", func(t *testing.T) {
		t.Parallel()
		var r Receiver
		other := connect(t, &r, 16)
		go func() {
			_, _ = io.ReadFull(other, make([]byte, 7))
			_ = other.Close()
		}()
		if n, err := r.Exchange([]byte("request")); n != 7 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if err := r.Fill(); err != io.EOF {
			t.Errorf("after that: %v", err)
		}
	})
	t.Run("more than the socket takes", func(t *testing.T) {
		t.Parallel()
		var r Receiver
		other := connect(t, &r, 16)
		p := make([]byte, 4<<20)
		n, err := r.Exchange(p)
		if n == 0 || n == len(p) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if got, err := io.ReadFull(other, make([]byte, n)); got != n {
			t.Errorf("the other end got %d of %d, %v", got, n, err)
		}
	})
}

// FuzzWhole checks that what is whole ends with a chunk, or with the chunk that was begun, and that Decode takes all of
// it.
func FuzzWhole(f *testing.F) {
	f.Add([]byte("5\r\nhello\r\n0\r\n\r\n"), uint8(3), uint8(4))
	f.Add([]byte("3;a=b\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\nX: y\r\n\r\n"), uint8(9), uint8(9))
	f.Fuzz(func(t *testing.T, text []byte, begin, piece uint8) {
		var d Chunks
		dst := make([]byte, len(text))
		_, used, err := d.Decode(dst, text[:min(len(text), int(begin))])
		for text = text[used:]; err == nil && !d.Ended() && len(text) > 0; {
			p := text[:min(len(text), int(piece)+1)]
			whole, size := d.Whole(p)
			if size != 0 && whole+int(size) <= len(p) {
				t.Fatalf("a chunk of %d bytes after %d of %d is not whole", size, whole, len(p))
			}
			between := d.Between()
			_, used, err = d.Decode(dst, p[:whole])
			if err != nil {
				return
			}
			if used != whole && !d.Ended() || between && !d.Between() {
				t.Fatalf("of %d whole bytes %d were used, then between chunks: %t", whole, used, d.Between())
			}
			if text = text[used:]; used == 0 {
				if piece == 255 || int(piece) >= len(text) {
					return
				}
				piece++ // more has come
			}
		}
	})
}
