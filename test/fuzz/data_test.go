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

// serveData serves the data socket, once.
func (s *stage) serveData() {
	s.once.Do(func() {
		go func() {
			for {
				c, err := s.listener.Accept()
				if err != nil {
					s.choices.note("accept: " + err.Error())
					time.Sleep(10 * time.Millisecond) // somebody else may have taken the connection
					continue
				}
				go s.serveConnection(c)
			}
		}()
	})
}

func (s *stage) serveConnection(c net.Conn) {
	defer c.Close()
	r := s.choices.of("data connection")
	if r.fault(50, "connection: closed at once") {
		return
	}
	if r.fault(50, "connection: unasked response") {
		_, _ = c.Write(r.response(false))
	}
	in := bufio.NewReaderSize(c, 1<<16)
	for {
		if r.fault(100, "request: not read") {
			time.Sleep(r.upTo(10 * time.Second))
			return
		}
		request, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		id := request.Header.Get(stagev1.HeaderRequest)
		s.remember(id)
		if !s.respond(c, request) || request.Close {
			return
		}
	}
}

// respond responds to a request, and reports whether the connection can be used again.
func (s *stage) respond(c net.Conn, request *http.Request) bool {
	r := s.choices.of("response")
	if r.IntN(100) >= max(s.rate, 30) {
		_, err := io.Copy(io.Discard, request.Body)
		if err == nil {
			_, err = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n")
		}
		return err == nil
	}
	switch {
	case r.fault(3, "body: asked for") && request.Header.Get("Expect") != "":
		_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
		_, _ = io.Copy(io.Discard, request.Body)
	case r.fault(3, "body: not read"):
	case r.fault(4, "body: read in part"):
		_, _ = io.CopyN(io.Discard, request.Body, int64(r.size(1<<16)))
	case request.Header.Get("Expect") == "":
		_, _ = io.Copy(io.Discard, request.Body)
	}
	switch r.pick("response: odd", "response: odd", "response: odd", "response: odd", "response: odd", "response: declined", "response: none", "response: silence",
		"response: next", "response: upgrade", "response: flood", "response: two", "response: noise", "response: giant head", "response: informational") {
	case "response: odd":
		return s.write(r, c, r.response(request.Method == http.MethodHead))
	case "response: declined":
		return s.write(r, c, fmt.Appendf(nil, "HTTP/1.1 404 Not Found\r\n%s: 1\r\n%sContent-Length: 0\r\n\r\n", stagev1.HeaderDecline, r.header()))
	case "response: silence":
		time.Sleep(r.upTo(10 * time.Second))
	case "response: next":
		_, _ = c.Write(s.next(r, request))
		return r.one(2)
	case "response: upgrade":
		_, _ = fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n%s\r\n", request.Header.Get("Upgrade"), r.header())
		for range r.size(1000) {
			if _, err := c.Write(r.bytes(r.size(1 << 16))); err != nil {
				break
			}
		}
		if u, ok := c.(*net.UnixConn); ok && r.one(2) {
			_ = u.CloseWrite()
		}
		time.Sleep(r.upTo(time.Second))
	case "response: flood":
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		chunk := r.chunk(r.bytes(1 + r.size(1<<16)))
		for end := time.Now().Add(r.upTo(3 * time.Second)); time.Now().Before(end); {
			if _, err := c.Write(chunk); err != nil {
				break
			}
		}
	case "response: two":
		return s.write(r, c, append(r.response(false), r.response(false)...))
	case "response: noise":
		return s.write(r, c, r.bytes(r.size(1<<20)))
	case "response: giant head":
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
		line := []byte(fmt.Sprintf("%s: %s\r\n", r.headerName(), strings.Repeat("a", r.IntN(1<<16))))
		for range r.IntN(400) {
			if _, err := c.Write(line); err != nil {
				break
			}
		}
		time.Sleep(r.upTo(3 * time.Second))
		_, _ = io.WriteString(c, "\r\n")
	case "response: informational":
		for range r.size(10000) {
			if _, err := fmt.Fprintf(c, "HTTP/1.1 %d Go on\r\n%s\r\n", 100+r.IntN(10), r.header()); err != nil {
				return false
			}
		}
		return s.write(r, c, r.response(false))
	}
	return false
}

// write writes a response, as it is or not, and reports whether the connection can be used again.
func (s *stage) write(r *source, c net.Conn, response []byte) bool {
	if r.fault(10, "bytes: flipped") {
		response = r.flip(response)
	}
	cut := r.fault(6, "bytes: cut")
	if cut {
		response = response[:r.IntN(len(response)+1)]
	}
	if r.fault(10, "bytes: slow") {
		for len(response) > 0 {
			n := min(len(response), 1+len(response)/20+r.IntN(10))
			if _, err := c.Write(response[:n]); err != nil {
				return false
			}
			response = response[n:]
			time.Sleep(r.upTo(100 * time.Millisecond))
		}
	}
	if _, err := c.Write(response); err != nil {
		return false
	}
	if cut {
		time.Sleep(r.upTo(time.Second))
		return false
	}
	return !r.one(10)
}

// response returns a response, more or less.
func (s *source) response(empty bool) []byte {
	var b bytes.Buffer
	if s.fault(8, "head: informational") {
		for range 1 + s.size(100) {
			fmt.Fprintf(&b, "HTTP/1.1 %d x\r\n%s\r\n", []int{100, 101, 102, 103, 199}[s.IntN(5)], s.header())
		}
	}
	version, code := "HTTP/1.1", fmt.Sprint([]int{200, 201, 204, 205, 206, 301, 304, 400, 401, 403, 404, 409, 421, 429, 500, 502, 503, 504, 599, 600, 999}[s.IntN(21)])
	if s.fault(15, "head: status") {
		code = []string{"", "0", "-1", "99", "1000", "20", "2000", "abc", "99999999999999999999", "2 0", "100", "101", "0200", "+20"}[s.IntN(14)]
	}
	if s.fault(20, "head: version") {
		version = []string{"HTTP/1.0", "HTTP/2.0", "HTTP/0.9", "http/1.1", "HTTP/1.1.1", "", "ICY"}[s.IntN(7)]
	}
	fmt.Fprintf(&b, "%s %s %s\r\n", version, code, []string{"OK", "", strings.Repeat("x", s.size(1<<16))}[s.IntN(3)])
	b.WriteString(s.header())
	body := s.bytes(s.size(1 << 18))
	if s.one(3) {
		body = []byte(s.json(1 << 16))
	}
	switch s.pick("framing: length", "framing: length", "framing: chunks", "framing: chunks", "framing: chunks", "framing: none", "framing: both", "framing: two lengths", "framing: odd length", "framing: odd encoding") {
	case "framing: length", "":
		fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n", len(body))
	case "framing: chunks":
		s.chunks(&b, body)
		return b.Bytes()
	case "framing: none":
		b.WriteString("\r\n")
	case "framing: both":
		fmt.Fprintf(&b, "Content-Length: %d\r\n", s.IntN(1<<10))
		s.chunks(&b, body)
		return b.Bytes()
	case "framing: two lengths":
		fmt.Fprintf(&b, "Content-Length: %d\r\nContent-Length: %d\r\n\r\n", len(body), s.IntN(1<<10))
	case "framing: odd length":
		fmt.Fprintf(&b, "Content-Length: %s\r\n\r\n", []string{"-1", "+5", "5 ", "0x5", "9223372036854775807", "9223372036854775808", "", "5,5", "1e3", "५"}[s.IntN(10)])
	case "framing: odd encoding":
		fmt.Fprintf(&b, "Transfer-Encoding: %s\r\n\r\n", []string{"gzip", "gzip, chunked", "chunked, chunked", "identity", "xchunked", "Chunked ", "chunked;x=y", ""}[s.IntN(8)])
	}
	if !empty || s.one(5) {
		b.Write(body)
	}
	return b.Bytes()
}

// chunks ends a head, and writes a body in chunks with its trailer.
func (s *source) chunks(b *bytes.Buffer, body []byte) {
	trailer := ""
	if s.fault(3, "chunks: trailer") {
		trailer = s.header()
	}
	if trailer != "" && s.one(2) {
		fmt.Fprintf(b, "Trailer: %s\r\n", []string{stagev1.HeaderAudit, "X-Check-Trailer", "Content-Length", "Transfer-Encoding, X-Catena-User", strings.Repeat("a,", s.size(10000))}[s.IntN(5)])
	}
	b.WriteString("Transfer-Encoding: chunked\r\n\r\n")
	for len(body) > 0 {
		n := min(len(body), 1+s.IntN(1<<14))
		b.Write(s.chunk(body[:n]))
		body = body[n:]
	}
	b.WriteString("0\r\n" + trailer + "\r\n")
}

func (s *source) chunk(body []byte) []byte {
	size := fmt.Sprintf("%x", len(body))
	if s.fault(30, "chunks: size") {
		size = []string{"", "-1", "0x1", "g", "ffffffffffffffff", "7fffffffffffffff", "10000000000000000", strings.Repeat("0", s.size(1<<16)) + "1", " 1", "1 "}[s.IntN(10)]
	}
	if s.fault(10, "chunks: extension") {
		size += ";" + strings.Repeat("x=y;", s.size(1<<16))
	}
	return append(append([]byte(size+"\r\n"), body...), "\r\n"...)
}

// headers are those that mean something to the host or to its clients.
var headers = []string{
	stagev1.HeaderDecline, stagev1.HeaderAudit, stagev1.HeaderAudit, stagev1.HeaderAudit, stagev1.HeaderLatency, stagev1.HeaderLatency, stagev1.HeaderInitializing, stagev1.HeaderUndelivered,
	stagev1.HeaderUser, stagev1.HeaderRequest, stagev1.HeaderTimeout, stagev1.HeaderReceived, stagev1.HeaderNext, stagev1.HeaderDelegate, stagev1.HeaderInitialized, stagev1.HeaderAuditLevel, stagev1.HeaderClient, stagev1.HeaderAdded, stagev1.HeaderCause,
	"X-Catena-Explain", "X-Catena-Anything", "X-Remote-User", "Audit-ID", "X-Kubernetes-PF-FlowSchema-UID", "Warning", "Warning", "Connection", "Keep-Alive", "Upgrade", "TE", "Trailer", "Proxy-Connection",
	"Content-Type", "Content-Encoding", "Content-Range", "Date", "Retry-After", "Location", "Set-Cookie", "Vary", "Link", "Strict-Transport-Security", "Access-Control-Allow-Origin", "Cache-Control", "Alt-Svc", "ETag",
	"WWW-Authenticate", "Sec-WebSocket-Accept", "Sec-WebSocket-Protocol", "Expect", "Host", "traceparent",
}

func (s *source) headerName() string {
	if s.one(10) {
		return []string{"", " ", "A B", "X-\x00", "x:y", ":status", "é", "\tX", strings.Repeat("N", s.size(1<<16)), "X-Catena-Decline ", "x_catena_decline"}[s.IntN(11)]
	}
	return headers[s.IntN(len(headers))]
}

// header returns lines of a head, or of a trailer.
func (s *source) header() string {
	var b strings.Builder
	for range s.size(2000) {
		name := s.headerName()
		if !s.allows("header: " + name) {
			continue
		}
		value := ""
		switch {
		case name == stagev1.HeaderAudit:
			value = s.audit(1 << 16)
		case s.one(4):
			value = fmt.Sprint([]int64{0, -1, 1, 1 << 62, s.Int64()}[s.IntN(5)])
		default:
			value = s.text(1 << 14)
		}
		if !s.one(10) {
			value = strings.NewReplacer("\r", " ", "\n", " ", "\x00", " ").Replace(value)
		}
		b.WriteString(name + ": " + value + []string{"\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r\n folded\r\n"}[max(0, s.IntN(50)-44)])
	}
	return b.String()
}
