package httpserver

import (
	"bufio"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

const posted = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n"

// A response begins while another goroutine waits for more of the body: neither waits for the other, with and without Expect.
func TestResponseDuringRead(t *testing.T) {
	t.Parallel()
	s := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reading, lines := bufio.NewReader(r.Body), make(chan string)
		go func() {
			defer close(lines)
			for {
				line, err := reading.ReadString('\n')
				if err != nil {
					return
				}
				lines <- line
			}
		}()
		for line := range lines {
			_, _ = io.WriteString(w, strings.ToUpper(line))
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		}
	}))
	for _, expect := range []string{"", "Expect: 100-continue\r\n"} {
		conn := dial(t, s.path)
		in := bufio.NewReader(conn)
		send(t, conn, posted+expect+"\r\n")
		if expect != "" {
			if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != http.StatusContinue {
				t.Fatalf("%v, %v", resp, err)
			}
		}
		send(t, conn, "4\r\none\n\r\n")
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		out := bufio.NewReader(resp.Body)
		for _, next := range []string{"4\r\ntwo\n\r\n", "6\r\nthree\n\r\n", "0\r\n\r\n"} {
			line, err := out.ReadString('\n')
			if err != nil {
				t.Fatalf("%q, %v", line, err)
			}
			send(t, conn, next)
		}
		if rest, err := io.ReadAll(out); string(rest) != "THREE\n" && len(rest) > 0 || err != nil {
			t.Errorf("%q, %v", rest, err)
		}
	}
}

// The host is asked for the body before the response, or not at all, whoever reads and writes at the same time.
func TestContinueIsNoPartOfTheResponse(t *testing.T) {
	t.Parallel()
	s := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin, read := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(read)
			<-begin
			_, _ = io.ReadAll(r.Body)
		}()
		close(begin)
		for range rand.IntN(100) {
			runtime.Gosched()
		}
		_, _ = w.Write(make([]byte, 3))
		_ = http.NewResponseController(w).Flush()
		<-read
	}))
	for range 5000 {
		conn := dial(t, s.path)
		send(t, conn, "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\nbody")
		got, err := io.ReadAll(conn)
		if text := string(got); strings.Contains(strings.TrimPrefix(text, "HTTP/1.1 100 Continue\r\n\r\n"), "Continue") || err != nil {
			t.Fatalf("%q, %v", text, err)
		}
		_ = conn.Close()
	}
}

// Nobody is asked for the body by reading it when it has been closed.
func TestContinueAfterClose(t *testing.T) {
	t.Parallel()
	s := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.Body.Close()
		if n, err := r.Body.Read(make([]byte, 1)); n != 0 || !errors.Is(err, http.ErrBodyReadAfterClose) {
			t.Errorf("%d, %v", n, err)
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	conn := dial(t, s.path)
	send(t, conn, posted+"Expect: 100-continue\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("%v, %v", resp, err)
	}
}

// What a deadline has kept a handler from reading, it may read with a later one.
func TestReadAfterDeadline(t *testing.T) {
	t.Parallel()
	for name, body := range map[string][2]string{
		"of known length": {"Content-Length: 8\r\n\r\nsome", "more"},
		"in chunks":       {"Transfer-Encoding: chunked\r\n\r\n8\r\nsome", "more\r\n0\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					return
				}
				control, p := http.NewResponseController(w), make([]byte, 4)
				if n, err := io.ReadFull(r.Body, p); err != nil {
					t.Errorf("%d, %v", n, err)
				}
				_ = control.SetReadDeadline(time.Unix(1, 0))
				if n, err := r.Body.Read(p); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("after the deadline: %d, %v", n, err)
				}
				_ = control.SetReadDeadline(time.Time{})
				w.WriteHeader(http.StatusContinue)
				if rest, err := io.ReadAll(r.Body); string(rest) != "more" || err != nil {
					t.Errorf("without one: %q, %v", rest, err)
				}
			}))
			conn := dial(t, s.path)
			in := bufio.NewReader(conn)
			send(t, conn, "POST / HTTP/1.1\r\nHost: h\r\n"+body[0])
			for _, want := range []int{http.StatusContinue, http.StatusOK, http.StatusOK} {
				if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != want {
					t.Fatalf("%v, %v", resp, err)
				}
				if want == http.StatusContinue {
					send(t, conn, body[1]+plain)
				}
			}
		})
	}
}

// A handler that returns while a goroutine of its own waits for more of the body is not kept from it.
func TestReaderLeftBehind(t *testing.T) {
	t.Parallel()
	read := make(chan error, 1)
	s := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reading := make(chan struct{})
		go func() {
			_, _ = io.ReadFull(r.Body, make([]byte, 1))
			close(reading)
			_, err := io.ReadAll(r.Body)
			read <- err
		}()
		<-reading
	}))
	conn := dial(t, s.path)
	send(t, conn, posted+"\r\n1\r\na\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || !resp.Close {
		t.Errorf("%v, %v", resp, err)
	}
	var netErr net.Error
	if err := await(t, "the end of the read", read); err == nil || errors.As(err, &netErr) && netErr.Timeout() {
		t.Errorf("the read: %v", err)
	}
}

// A response in a full duplex begins before the body has come to its end, and says that the connection ends, or after
// it.
func TestConnectionOfFullDuplex(t *testing.T) {
	t.Parallel()
	s := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		if r.Header.Get("X-Read") != "" {
			_, _ = io.Copy(io.Discard, r.Body)
		}
	}))
	for head, closes := range map[string]bool{posted + "\r\n": true, posted + "X-Read: yes\r\n\r\n": false} {
		for _, sent := range []string{"3\r\nabc", "50000\r\n" + strings.Repeat("a", 0x50000)} {
			sent += "\r\n0\r\n\r\n"
			conn := dial(t, s.path)
			sending := make(chan struct{})
			go func() {
				defer close(sending)
				_, _ = io.WriteString(conn, head+sent)
			}()
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || resp.Close != closes {
				t.Errorf("%q, %d bytes: %v, closes: %v, want %v", head, len(sent), err, resp.Close, closes)
			}
			<-sending
		}
	}
}

// A proxy passes 100 Continue on in one goroutine, and reads the body in another: whichever is first, the body is read.
func TestContinueByHandlerDuringRead(t *testing.T) {
	t.Parallel()
	s := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin, read := make(chan struct{}), make(chan error)
		go func() {
			<-begin
			_, err := io.ReadAll(r.Body)
			read <- err
		}()
		close(begin)
		w.WriteHeader(http.StatusContinue)
		if err := <-read; err != nil {
			t.Error(err)
		}
	}))
	for range 3000 {
		conn := dial(t, s.path)
		send(t, conn, posted+"Expect: 100-continue\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
		in := bufio.NewReader(conn)
		for status := http.StatusContinue; status == http.StatusContinue; {
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			status = resp.StatusCode
		}
		_ = conn.Close()
		if t.Failed() {
			return
		}
	}
}
