package httpserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A program is what a handler does, a byte for each step. It writes down what it finds.
type program []byte

// steps is how many kinds of steps there are.
const steps = 39

// step takes a step, and returns what the handler has seen of it.
func step(op byte, w http.ResponseWriter, r *http.Request) string {
	control := http.NewResponseController(w)
	switch op % steps {
	case 0:
		w.WriteHeader(http.StatusOK)
	case 1:
		w.WriteHeader(http.StatusNotFound)
	case 2:
		w.WriteHeader(http.StatusNoContent)
	case 3:
		w.WriteHeader(http.StatusNotModified)
	case 4:
		w.WriteHeader(http.StatusEarlyHints)
	case 5:
		return outcome(w.Write([]byte("some text\n")))
	case 6:
		panic(http.ErrAbortHandler)
	case 7:
		return outcome(w.Write([]byte(strings.Repeat("<p>", 400))))
	case 8:
		return outcome(w.Write(make([]byte, 9000)))
	case 9:
		return outcome(w.Write(nil))
	case 10:
		return outcome(io.WriteString(w, "string"))
	case 11, 12:
		return outcome(0, control.Flush())
	case 13:
		w.Header().Set("Content-Length", "10")
	case 14:
		w.Header().Set("Content-Length", "0") // net/http sends one that is no number
	case 15:
		w.Header().Set("Content-Type", "application/json")
	case 16:
		w.Header()["Content-Type"] = nil
	case 17:
		w.Header().Set("Content-Encoding", "gzip")
	case 18:
		w.Header().Set("Transfer-Encoding", "identity")
	case 19:
		w.Header().Set("Connection", "close")
	case 20:
		w.Header().Add("X-Lines", "a\r\nInjected: b")
		w.Header()["x-low"] = []string{" v ", "w"}
		w.Header()["not a token"] = []string{"x"}
	case 21:
		w.Header().Set("Trailer", "X-Sum, X-Other")
	case 22:
		w.Header().Set("X-Sum", "1")
	case 23:
		w.Header().Set(http.TrailerPrefix+"X-Late", "2")
	case 24, 25:
		text, err := io.ReadAll(r.Body)
		return fmt.Sprintf("%s, trailers %v", outcome(len(text), err), r.Trailer)
	case 26:
		return outcome(io.ReadFull(r.Body, make([]byte, 100)))
	case 27:
		if r.Header["Expect"] == nil { // net/http takes no other request then
			return outcome(0, r.Body.Close())
		}
	case 28:
		n, err := io.Copy(w, strings.NewReader(strings.Repeat("copied ", 700)))
		return outcome(int(n), err)
	case 29:
		if r.ContentLength == 0 { // net/http takes no other request after a body that is not read
			return fmt.Sprint(control.EnableFullDuplex())
		}
	case 30:
		w.Header().Set("Transfer-Encoding", "chunked")
	case 31:
		w.Header().Set("Content-Length", "9000")
	case 32:
		w.WriteHeader(http.StatusContinue)
	case 33: // what has been received is read in spite of it, and net/http receives other pieces
		if r.ContentLength >= 0 && r.ContentLength <= 300 {
			return fmt.Sprint(control.SetReadDeadline(time.Unix(1, 0)))
		}
	case 34:
		return fmt.Sprint(control.SetReadDeadline(time.Time{}))
	case 35: // what fails after that differs
		flushed, err := control.Flush(), control.SetWriteDeadline(time.Unix(1, 0))
		late := outcome(io.WriteString(w, "late"))
		return fmt.Sprint(last, outcome(0, flushed), outcome(0, err), late, outcome(0, control.Flush()))
	case stepDuplex:
		return duplex(w, r)
	case 37:
		return takeOver(w, r)
	case 38:
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "test")
		w.WriteHeader(http.StatusSwitchingProtocols)
		return takeOver(w, r)
	}
	return ""
}

// stepDuplex is the step of duplex.
const stepDuplex = 36

// duplex reads the body in one goroutine and writes in another, once the response has begun: whether a body that is
// expected has been read by then decides about the connection.
func duplex(w http.ResponseWriter, r *http.Request) string {
	control := http.NewResponseController(w)
	enabled, begun := control.EnableFullDuplex(), control.Flush()
	read := make(chan string, 1)
	go func() {
		text, err := io.ReadAll(r.Body)
		read <- outcome(len(text), err)
	}()
	written, flushed := outcome(io.WriteString(w, "meanwhile\n")), control.Flush()
	return fmt.Sprint(enabled, begun != nil, <-read, written, flushed != nil)
}

// last begins what the last step of a program has seen.
const last = "last: "

// takeOver takes the connection over, reads the rest of the body, and ends the connection with a response of its own.
// What has been written is sent before: net/http drops what it holds back.
func takeOver(w http.ResponseWriter, r *http.Request) string {
	control := http.NewResponseController(w)
	flushed := control.Flush()
	conn, buffered, err := control.Hijack()
	if err != nil {
		return fmt.Sprint(err)
	}
	defer conn.Close()
	body, err := io.ReadAll(r.Body)
	_, _ = buffered.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\ntaken")
	_ = buffered.Flush() // the client may have gone
	return fmt.Sprint(last, outcome(0, flushed), outcome(len(body), err))
}

// outcome leaves out the length of a failed write, and the texts of errors that are the server's own.
func outcome(n int, err error) string {
	for _, known := range []error{nil, http.ErrBodyNotAllowed, http.ErrContentLength, http.ErrBodyReadAfterClose, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, known) {
			return fmt.Sprint(n, known)
		}
	}
	return "failed"
}

// handler runs the program that the header of a request names.
func handler(programs func(r *http.Request) program, found func(string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		found(describeRequest(r))
		wrote := false
		for _, op := range programs(r) {
			switch op % steps {
			case 5, 7, 8, 10, 11, 12, 28, 35:
				wrote = true
			case 24, 25, 26, 36: // a body that is not asked for in time does not come; net/http would wait for it
				if wrote && r.Header["Expect"] != nil {
					continue
				}
				wrote = wrote || op%steps == 36
			}
			seen := step(op, w, r)
			found(fmt.Sprint(op%steps, ": ", seen))
			if strings.HasPrefix(seen, last) {
				return
			}
		}
	})
}

func describeRequest(r *http.Request) string {
	return fmt.Sprintf("%s %q %q %s host %q %v length %d %v trailers %v close %v, in a server %v", r.Method, r.URL, r.RequestURI, r.Proto, r.Host, r.Header, r.ContentLength, r.TransferEncoding, r.Trailer, r.Close, r.Context().Value(http.ServerContextKey) != nil)
}

// requests are the requests that each program responds to.
var requests = []string{
	"GET /a HTTP/1.1\r\nHost: h\r\n\r\n",
	"HEAD /a?b=c HTTP/1.1\r\nHost: h\r\nAccept: x\r\nAccept: y\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 300\r\n\r\n" + strings.Repeat("abc", 100),
	"PUT /a%2fb HTTP/1.1\r\nHost: h\r\nPragma: no-cache\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n4\r\nabcd\r\n60;x=y\r\n" + strings.Repeat("e", 96) + "\r\n0\r\nX-T: 1\r\nX-U: 2\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 40000\r\n\r\n" + strings.Repeat("abcd", 10000),
	"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 300\r\nExpect: 100-continue\r\n\r\n" + strings.Repeat("abc", 100),
	"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n12c\r\n" +
		strings.Repeat("abc", 100) + "\r\n0\r\n\r\n",
}

// play sends a request and a second one on the same connection, and returns what has come of them.
func play(t *testing.T, path, request string) string {
	t.Helper()
	conn := dial(t, path)
	defer conn.Close()
	in := bufio.NewReader(conn)
	method, _, _ := strings.Cut(request, " ")
	var b strings.Builder
	for _, text := range []string{request, "GET /second HTTP/1.1\r\nHost: h\r\n\r\n"} {
		go func() { _, _ = io.WriteString(conn, text) }()
		closed := false
		for again := true; again; {
			resp, err := http.ReadResponse(in, &http.Request{Method: method})
			if err != nil {
				return b.String() + "no response\n"
			}
			again, closed = resp.StatusCode < 200, resp.Close
			body, err := io.ReadAll(resp.Body)
			if resp.StatusCode == http.StatusContinue {
				continue // net/http asks for the body only as long as nothing is written, even if it is held back
			}
			if resp.Close && strings.Contains(request, "Expect: ") { // net/http resets a connection with a body that has not been read
				body, err = nil, nil
			}
			b.WriteString(describeResponse(resp, string(body), err))
		}
		if closed {
			break
		}
		method = http.MethodGet
	}
	return b.String()
}

// describeResponse leaves out how much has come of a body that breaks off: the servers hold back more or less of one.
func describeResponse(resp *http.Response, body string, err error) string {
	resp.Header.Del("Date")
	switch {
	case resp.ContentLength < 0 && len(resp.TransferEncoding) == 0:
		body, err = "", nil // nothing tells whether it is whole
	case err != nil:
		body = ""
	}
	header := http.Header{}
	for key, values := range resp.Header {
		header[textproto.CanonicalMIMEHeaderKey(key)] = values
	}
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(header)) {
		lines = append(lines, fmt.Sprintf("%s %q", key, header[key]))
	}
	return fmt.Sprintf("%s %v length %d %v close %v trailers %v body %d %.20q whole %v\n", resp.Status, lines, resp.ContentLength, resp.TransferEncoding, resp.Close, resp.Trailer, len(body), body, err == nil)
}

// both runs programs on both servers.
type both struct {
	own, standard string
	handlers      sync.WaitGroup
	mu            sync.Mutex
	program       program
	found         map[string]*strings.Builder
}

func startBoth(t *testing.T) *both {
	b := &both{found: map[string]*strings.Builder{}}
	on := func(server string) http.Handler {
		b.found[server] = &strings.Builder{}
		h := handler(func(r *http.Request) program {
			b.mu.Lock()
			defer b.mu.Unlock()
			if r.URL.Path == "/second" {
				return nil
			}
			return b.program
		}, func(s string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			fmt.Fprintln(b.found[server], s)
		})
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.handlers.Add(1)
			defer b.handlers.Done()
			h.ServeHTTP(w, r)
		})
	}
	b.own, b.standard = start(t, on("own")).path, startStandard(t, on("standard"))
	return b
}

// compare runs a program for a request.
func (b *both) compare(t *testing.T, p program, request string) {
	t.Helper()
	if slices.Contains(p, stepDuplex) { // net/http does not say in the head that no other request may follow
		request = strings.Replace(request, "Host: h\r\n", "Host: h\r\nConnection: close\r\n", 1)
	}
	b.mu.Lock()
	b.program = p
	for _, found := range b.found {
		found.Reset()
	}
	b.mu.Unlock()
	own, standard := play(t, b.own, request), play(t, b.standard, request)
	b.handlers.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if got, want := b.found["own"].String()+own, b.found["standard"].String()+standard; got != want {
		t.Errorf("program %v, request %.60q:\n%s\nnet/http:\n%s", p, request, got, want)
	}
}

// Handlers and clients see the same as with the server of net/http, whatever a handler does.
func TestSameAsStandard(t *testing.T) {
	t.Parallel()
	b := startBoth(t)
	random := rand.New(rand.NewPCG(1, 2))
	const programs = 3000
	for i := range programs {
		p := make(program, random.IntN(7))
		for j := range p {
			p[j] = byte(random.IntN(steps))
		}
		b.compare(t, p, requests[i%len(requests)])
		if t.Failed() {
			return
		}
	}
}

func FuzzSameAsStandard(f *testing.F) {
	f.Add([]byte{5, 11, 5}, uint8(0))
	f.Fuzz(func(t *testing.T, p []byte, request uint8) {
		startBoth(t).compare(t, p[:min(len(p), 20)], requests[int(request)%len(requests)])
	})
}
