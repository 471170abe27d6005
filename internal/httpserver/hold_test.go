package httpserver

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"
)

// slowSource has a piece of n bytes, and the next one when the one before has arrived.
type slowSource struct {
	n, pieces int
	arrived   <-chan struct{}
}

func (s *slowSource) Read(p []byte) (int, error) {
	if s.arrived != nil && s.pieces < 3 {
		<-s.arrived
	}
	if s.pieces--; s.pieces < 0 {
		return 0, io.EOF
	}
	return copy(p, bytes.Repeat([]byte("x"), s.n)), nil
}

// What a handler has written reaches the client while it goes on, if it is more than net/http's server holds back, or comes from a source that
// has nothing more.
func TestHeldOnlyForBursts(t *testing.T) {
	t.Parallel()
	const piece = 8 << 10
	arrived := make(chan struct{})
	s := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/written":
			for range 3 {
				_, _ = w.Write(make([]byte, piece))
				<-arrived
			}
		case "/small": // behind a first piece, which is more
			_, _ = w.Write(make([]byte, piece-3000))
			for range 3 {
				_, _ = w.Write(make([]byte, 1000))
			}
			<-arrived
			_, _ = w.Write(make([]byte, 2*piece))
			<-arrived
			<-arrived
		default:
			_, _ = io.Copy(w, struct{ io.Reader }{&slowSource{n: piece, pieces: 3, arrived: arrived}})
		}
	}))
	for _, path := range []string{"/written", "/small", "/copied"} {
		conn := dial(t, s.path)
		send(t, conn, fmt.Sprintf("GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path))
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if n, err := io.ReadFull(resp.Body, make([]byte, piece)); err != nil {
				t.Fatalf("%s: piece %d: %d bytes, %v", path, i, n, err)
			}
			arrived <- struct{}{}
		}
		if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil {
			t.Errorf("%s: %d bytes more, %v", path, len(rest), err)
		}
	}
}

// Pieces that come at once go out together.
func TestBurstsGoTogether(t *testing.T) {
	t.Parallel()
	s := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range 30 {
			_, _ = w.Write(make([]byte, 1000))
		}
	}))
	whole := 0
	for range 20 { // a busy machine may take longer for one of them
		conn := dial(t, s.path)
		send(t, conn, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
		got, err := io.ReadAll(conn)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(got, []byte("\r\n7530\r\n")) {
			whole++
		}
	}
	if whole == 0 {
		t.Error("30,000 bytes never came as one chunk")
	}
}
