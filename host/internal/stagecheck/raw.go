package stagecheck

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// rawConn is a connection to the data socket, without the relay.
type rawConn struct {
	net.Conn
	r     *bufio.Reader
	since time.Time // of the last response
}

// dial connects to the data socket. Reads and writes fail when ctx ends.
func (st *stage) dial(ctx context.Context) (*rawConn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", st.listener.Path())
	if err != nil {
		return nil, fmt.Errorf("data socket: %w", err)
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	return &rawConn{Conn: conn, r: bufio.NewReader(conn)}, nil
}

// head writes the head of a request, with the lines of more after those of the host.
func (c *rawConn) head(method, target string, more ...string) error {
	return c.request(method, target, "", more...)
}

// request writes a request at once, as the host does: a stage may close its end when it has seen the head.
func (c *rawConn) request(method, target, body string, more ...string) error {
	text := method + " " + target + " HTTP/1.1\r\nHost: stage\r\nX-Catena-Request: 1\r\n" +
		"X-Catena-User: {\"name\":\"stagecheck\"}\r\n"
	_, err := io.WriteString(c, text+strings.Join(append(more, "", body), "\r\n"))
	return err
}

// readResponse reads the head of a response, and the body of a final one. It skips hints, as 103 Early Hints is one.
func (c *rawConn) readResponse(method string) (*http.Response, error) {
	resp, err := http.ReadResponse(c.r, &http.Request{Method: method})
	for err == nil && resp.StatusCode > http.StatusSwitchingProtocols && resp.StatusCode < 200 {
		resp, err = http.ReadResponse(c.r, &http.Request{Method: method})
	}
	if err != nil {
		return nil, fmt.Errorf("read the response: %w", err)
	}
	if resp.StatusCode >= 200 {
		if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxResponse)); err != nil {
			return nil, fmt.Errorf("read the response: %w", err)
		}
	}
	c.since = time.Now()
	return resp, nil
}

// exchange makes a request without a body and reads the response.
func (c *rawConn) exchange(method, target string, more ...string) (*http.Response, error) {
	if err := c.head(method, target, more...); err != nil {
		return nil, fmt.Errorf("write the request: %w", err)
	}
	return c.readResponse(method)
}
