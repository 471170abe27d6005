package fuzz

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// callers are how many goroutines of a process call the host.
const callers = 4

// remember keeps the id of a request in flight, for calls to the host.
func (s *stage) remember(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, id)
	if len(s.requests) > 20 {
		s.requests = s.requests[1:]
	}
}

func (s *stage) recent(r *source) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.requests) == 0 {
		return "none"
	}
	return s.requests[r.IntN(len(s.requests))]
}

// callHost begins to call the host, if it is the first time.
func (s *stage) callHost(h *stagev1.Host) {
	s.mu.Lock()
	first := s.host == nil
	s.host = h
	s.mu.Unlock()
	for n := 0; first && n < callers; n++ {
		go func() {
			for {
				r := s.choices.of("call")
				time.Sleep(r.upTo(300 * time.Millisecond))
				s.callOnce(r)
			}
		}()
	}
}

// dialHost connects to the host; what is not written or read soon is given up.
func (s *stage) dialHost(r *source) (net.Conn, error) {
	c, err := net.Dial("unix", s.host.GetSocket())
	if err != nil {
		time.Sleep(100 * time.Millisecond)
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(time.Second + r.upTo(5*time.Second)))
	return c, nil
}

func (s *stage) callOnce(r *source) {
	kind := r.pick("call: request", "call: request", "call: request", "call: request", "call: event", "call: event", "call: discovery", "call: discovery",
		"call: half a head", "call: noise", "call: http2", "call: giant head", "call: body", "call: upgrade")
	if r.fault(200, "call: many connections") {
		s.crowd(r)
	}
	if kind == "" {
		return
	}
	c, err := s.dialHost(r)
	if err != nil {
		return
	}
	defer c.Close()
	switch kind {
	case "call: request":
		_, _ = c.Write(r.flipSome(s.request(r, r.method(), r.path(), r.text(1<<16))))
	case "call: event":
		_, _ = c.Write(s.request(r, http.MethodPost, "/api/v1/namespaces/default/events", r.event()))
	case "call: discovery":
		path := []string{"/api", "/apis", "/api/v1", "/apis/apps/v1", "/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1"}[r.IntN(7)]
		_, _ = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s: %s\r\n\r\n", path, s.host.GetToken(), stagev1.HeaderDelegate, []string{"core", "aggregator", "random-c", "random-b", "x"}[r.IntN(5)])
	case "call: half a head":
		b := s.request(r, r.method(), r.path(), "")
		_, _ = c.Write(b[:r.IntN(len(b))])
	case "call: noise":
		_, _ = c.Write(r.bytes(r.size(1 << 20)))
	case "call: http2":
		_, _ = io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
		_, _ = c.Write(r.bytes(r.size(1 << 16)))
	case "call: giant head":
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n")
		line := []byte("X-A: " + strings.Repeat("a", 1+r.IntN(1<<16)) + "\r\n")
		for range r.IntN(100) {
			if _, err := c.Write(line); err != nil {
				break
			}
		}
	case "call: body":
		_, _ = fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s: %s\r\nTransfer-Encoding: chunked\r\n\r\n", r.method(), r.path(), s.host.GetToken(), stagev1.HeaderNext, s.recent(r))
		for range r.size(200) {
			if _, err := c.Write(r.chunk(r.bytes(1 + r.size(1<<16)))); err != nil {
				break
			}
		}
	case "call: upgrade":
		_, _ = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s: %s\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", r.path(), s.host.GetToken(), stagev1.HeaderNext, s.recent(r))
		_, _ = c.Write(r.bytes(r.size(1 << 16)))
	}
	if r.one(4) {
		return
	}
	in := bufio.NewReader(c)
	for {
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, response.Body, int64(r.IntN(1<<22))); err != io.EOF || response.Close || r.one(2) {
			return
		}
		_, _ = c.Write(s.request(r, r.method(), r.path(), ""))
	}
}

// crowd holds many connections for a while.
func (s *stage) crowd(r *source) {
	var all []net.Conn
	for range r.IntN(600) {
		c, err := s.dialHost(r)
		if err != nil {
			break
		}
		if r.one(2) {
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nX-A: ")
		}
		all = append(all, c)
	}
	time.Sleep(r.upTo(5 * time.Second))
	for _, c := range all {
		_ = c.Close()
	}
}

// request returns a request to the host.
func (s *stage) request(r *source, method, target, body string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: x\r\n", method, target)
	if !r.one(10) {
		fmt.Fprintf(&b, "Authorization: Bearer %s\r\n", s.host.GetToken())
	}
	switch r.IntN(4) {
	case 0:
		fmt.Fprintf(&b, "%s: %s\r\n", stagev1.HeaderNext, s.recent(r))
	case 1:
		fmt.Fprintf(&b, "%s: %s\r\n", stagev1.HeaderDelegate, words[r.IntN(len(words))])
	case 2:
		fmt.Fprintf(&b, "%s: %s\r\n", stagev1.HeaderInitialized, s.recent(r))
	}
	if r.one(5) {
		b.WriteString(r.header())
	}
	if r.one(10) {
		b.WriteString("Expect: 100-continue\r\n")
	}
	fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	return b.Bytes()
}

// next passes a request on to the next stage, and returns what comes of it.
func (s *stage) next(r *source, request *http.Request) []byte {
	c, err := s.dialHost(r)
	if err != nil {
		return nil
	}
	defer c.Close()
	target := request.URL.RequestURI()
	if r.one(3) {
		target = r.path()
	}
	_, _ = fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s: %s\r\nConnection: close\r\n\r\n",
		request.Method, target, s.host.GetToken(), stagev1.HeaderNext, request.Header.Get(stagev1.HeaderRequest))
	response, _ := io.ReadAll(io.LimitReader(c, 1<<20))
	return response
}

func (s *source) flipSome(b []byte) []byte {
	if s.one(5) {
		return s.flip(b)
	}
	return b
}

func (s *source) method() string {
	return []string{"GET", "GET", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "", "get", "PRI", "A B", strings.Repeat("M", s.size(10000))}[s.IntN(16)]
}

func (s *source) path() string {
	path := []string{
		"/fuzz/random-a/x", "/fuzz/random-b/x", "/fuzz/random-c/x", "/api/v1/namespaces", "/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=2", "/api/v1/secrets", "/apis", "/openapi/v2", "/", "/metrics", "/healthz", "/livez", "/version",
		"/apis/authentication.k8s.io/v1/selfsubjectreviews", "*", "", "x", "//x", "http://x/y", "/fuzz/%2e%2e/x", "/fuzz/random-b/" + strings.Repeat("a", s.size(1<<16)), "/debug/catena/chain", "/debug/pprof/heap",
	}[s.IntN(23)]
	if s.one(5) {
		path += "?" + strings.Repeat("a=%00&", s.size(1000))
	}
	return path
}

// event returns an Event, more or less.
func (s *source) event() string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Event","metadata":{"generateName":"fuzz","namespace":"default"},"involvedObject":{"kind":"Pod","name":%q,"namespace":"default"},"reason":%q,"message":%q,"type":"Normal","x":%s}`,
		s.name(), words[s.IntN(len(words))], s.text(1<<12), s.json(1<<12))
}
