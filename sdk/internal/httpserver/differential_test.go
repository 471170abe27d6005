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
)

// A program is what a handler does, a byte for each step. It writes down what it finds.
type program []byte

// step takes a step, and returns what the handler has seen of it.
func step(op byte, w http.ResponseWriter, r *http.Request) string {
	control := http.NewResponseController(w)
	switch op % 32 {
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
		return fmt.Sprint(control.Flush())
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
		return fmt.Sprintf("%d bytes %v, trailers %v", len(text), err, r.Trailer)
	case 26:
		return outcome(io.ReadFull(r.Body, make([]byte, 100)))
	case 27:
		return fmt.Sprint(r.Body.Close())
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
	}
	return ""
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
		for _, op := range programs(r) {
			found(fmt.Sprint(op%32, ": ", step(op, w, r)))
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
	if err != nil {
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
			p[j] = byte(random.IntN(32))
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
