package http1

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"path/filepath"
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
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	sender, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	socket, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()

	const size = 16
	var r Receiver
	if err := r.Init(socket.(*net.UnixConn), NewBuffers(size)); err != nil {
		t.Fatal(err)
	}
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
