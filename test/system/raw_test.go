package system

import (
	"bufio"
	"crypto/tls"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// rawConn is a TLS connection on which anything can be sent.
type rawConn struct {
	*tls.Conn
	t      *testing.T
	server *cluster.Server
	in     *bufio.Reader
}

// dial connects to a server as a client that speaks HTTP/1 would.
func dial(t *testing.T, s *cluster.Server) *rawConn {
	t.Helper()
	addr := strings.TrimPrefix(s.URL, "https://")
	// Who the server is does not matter here.
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &rawConn{Conn: conn, t: t, server: s, in: bufio.NewReader(conn)}
}

// send writes text. A server that has closed the connection already may do so.
func (c *rawConn) send(text string) {
	c.t.Helper()
	_, _ = c.Write([]byte(text))
}

// response reads the response to a request, nil if there is none.
func (c *rawConn) response(method string) *http.Response {
	c.t.Helper()
	resp, err := http.ReadResponse(c.in, &http.Request{Method: method})
	if err != nil {
		c.t.Fatalf("no response: %v", err)
	}
	return resp
}

func (c *rawConn) line() string {
	c.t.Helper()
	line, err := c.in.ReadString('\n')
	if err != nil {
		c.t.Fatal(err)
	}
	return line
}

// whole reads a response with its body.
func (c *rawConn) whole(method string) response {
	c.t.Helper()
	resp := c.response(method)
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatalf("%s, and then: %v", resp.Status, err)
	}
	return response{resp.StatusCode, resp.Header, string(body)}
}

func itoa(n int) string { return strconv.Itoa(n) }
