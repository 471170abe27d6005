package httpserver

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// onBoth runs a test with each of the two servers.
func onBoth(t *testing.T, handler http.Handler, test func(t *testing.T, path string)) {
	t.Helper()
	for name, path := range map[string]string{"own": start(t, handler).path, "net/http": startStandard(t, handler)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, path)
		})
	}
}

// hijack takes the connection over.
func hijack(t *testing.T, w http.ResponseWriter) (net.Conn, *bufio.ReadWriter) {
	t.Helper()
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		panic(http.ErrAbortHandler)
	}
	return conn, buffered
}

// A handler may write the head of a 101 itself, or have the server do so. What follows is its own.
func TestSwitch(t *testing.T) {
	t.Parallel()
	onBoth(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "test")
		if r.URL.Path == "/server" {
			w.WriteHeader(http.StatusSwitchingProtocols)
		}
		conn, buffered := hijack(t, w)
		defer conn.Close()
		if r.URL.Path != "/server" {
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n")
		}
		_, _ = io.WriteString(conn, "hello\n")
		line, _ := buffered.ReadString('\n')
		_, _ = io.WriteString(conn, strings.ToUpper(line))
	}), func(t *testing.T, path string) {
		for _, target := range []string{"/server", "/handler"} {
			conn := dial(t, path)
			send(t, conn, "GET "+target+" HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\nbye\n")
			in := bufio.NewReader(conn)
			resp, err := http.ReadResponse(in, nil)
			if err != nil || resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != "test" || len(resp.TransferEncoding) > 0 {
				t.Errorf("%s: %v, %v", target, resp, err)
			}
			if got, err := io.ReadAll(in); string(got) != "hello\nBYE\n" {
				t.Errorf("%s: %q, %v", target, got, err)
			}
		}
	})
}

// Deadlines that a handler has set end with the takeover.
func TestHijackEndsDeadlines(t *testing.T) {
	t.Parallel()
	onBoth(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control, past := http.NewResponseController(w), time.Unix(1, 0)
		if err := control.SetReadDeadline(past); err != nil {
			t.Error(err)
		}
		if err := control.SetWriteDeadline(past); err != nil {
			t.Error(err)
		}
		conn, buffered := hijack(t, w)
		defer conn.Close()
		if line, err := buffered.ReadString('\n'); err != nil {
			t.Errorf("read: %q, %v", line, err)
		}
		if _, err := io.WriteString(conn, "got it\n"); err != nil {
			t.Errorf("write: %v", err)
		}
	}), func(t *testing.T, path string) {
		conn := dial(t, path)
		send(t, conn, plain+"something\n")
		if got, err := io.ReadAll(conn); string(got) != "got it\n" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// All that has been received with the request is in the reader of a handler that takes the connection over, which may then read on from
// the connection itself.
func TestHijackKeepsWhatHasCome(t *testing.T) {
	t.Parallel()
	early := bytes.Repeat([]byte("0123456789"), 1200)
	got := make(chan []byte, 1)
	s := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, buffered := hijack(t, w)
		defer conn.Close()
		received, err := buffered.Reader.Peek(buffered.Reader.Buffered())
		if err != nil {
			t.Error(err)
		}
		all := bytes.Clone(received)
		rest := make([]byte, len(early)-len(all))
		if _, err := io.ReadFull(conn, rest); err != nil {
			t.Error(err)
		}
		got <- append(all, rest...)
	}))
	send(t, dial(t, s.path), plain+string(early))
	if all := await(t, "what was sent", got); !bytes.Equal(all, early) {
		t.Errorf("%d bytes of %d", len(all), len(early))
	}
}

// What is left of the body can still be read as such when the connection has been taken over, and then what follows it.
func TestBodyAfterHijack(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("body ", 2000)
	for name, tc := range map[string]struct{ request, body, trailer string }{
		"short":   {"Content-Length: 4\r\n\r\nbody", "body", ""},
		"long":    {fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(large), large), large, ""},
		"chunked": {"Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n4\r\nbo" + "dy\r\n2710\r\n" + large + "\r\n0\r\nX-Sum: 1\r\n\r\n", "body" + large, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				first := make([]byte, 2)
				if _, err := io.ReadFull(r.Body, first); err != nil {
					t.Error(err)
				}
				conn, buffered := hijack(t, w)
				defer conn.Close()
				body, err := io.ReadAll(r.Body)
				if got := string(first) + string(body); got != tc.body || err != nil || r.Trailer.Get("X-Sum") != tc.trailer {
					t.Errorf("the body is %d bytes, %v, trailers %v", len(got), err, r.Trailer)
				}
				line, _ := buffered.ReadString('\n')
				_, _ = io.WriteString(conn, strings.ToUpper(line))
			}), func(t *testing.T, path string) {
				conn := dial(t, path)
				send(t, conn, "POST / HTTP/1.1\r\nHost: h\r\n"+tc.request+"after\n")
				if got, err := io.ReadAll(conn); string(got) != "AFTER\n" {
					t.Errorf("%q, %v", got, err)
				}
			})
		})
	}
}

// A goroutine that waits for more of the body does not keep the handler from taking the connection over.
func TestHijackDuringRead(t *testing.T) {
	t.Parallel()
	s := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reading, read := make(chan struct{}), make(chan error, 1)
		go func() {
			_, _ = io.ReadFull(r.Body, make([]byte, 2))
			close(reading)
			_, err := r.Body.Read(make([]byte, 1))
			read <- err
		}()
		<-reading
		conn, buffered := hijack(t, w)
		defer conn.Close()
		if err := <-read; err == nil || !strings.Contains(err.Error(), os.ErrDeadlineExceeded.Error()) {
			t.Errorf("the read: %v", err)
		}
		_, _ = io.WriteString(conn, "taken\n")
		line, _ := buffered.ReadString('\n')
		_, _ = io.WriteString(conn, line)
	}))
	conn := dial(t, s.path)
	send(t, conn, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nab")
	in := bufio.NewReader(conn)
	for _, want := range []string{"taken\n", "more\n"} {
		if line, err := in.ReadString('\n'); line != want {
			t.Fatalf("%q, %v", line, err)
		}
		if want == "taken\n" {
			send(t, conn, "more\n")
		}
	}
}
