package stagecheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// checkRequests makes sure that responses are delimited: each is followed by another on
// the same connection.
func checkRequests(ctx context.Context, s *suite) error {
	st, path, err := s.path(ctx)
	if err != nil {
		return err
	}
	conn, err := st.dial(ctx)
	if err != nil {
		return err
	}
	methods := []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodDelete, http.MethodGet}
	for i, method := range methods {
		resp, err := conn.exchange(method, path)
		if text := conn.leftover(); err == nil && len(text) > 0 {
			_ = conn.Close()
			return want(fmt.Sprintf("nothing after the response to %s %s", method, path), "%d bytes more: %.60q", len(text), text)
		}
		if err != nil {
			_ = conn.Close()
			expected := fmt.Sprintf("a response to %s %s, request %d on its connection", method, path, i+1)
			if i > 0 && methods[i-1] == http.MethodHead {
				expected += ", after HEAD, to which a response has no body, whatever its Content-Length"
			}
			return want(expected, "%v", err)
		}
		if resp.Close || strings.EqualFold(resp.Header.Get("Connection"), "close") {
			_ = conn.Close()
			return want(fmt.Sprintf("a connection that stays open after %s %s", method, path),
				"Connection: close, or a response without length in HTTP/1.0")
		}
	}
	st.keepIdle(conn)
	for _, path := range s.probePaths(st) {
		probe, cancel := context.WithTimeout(ctx, s.wait.probe())
		_, err := st.do(probe, http.MethodPost, path, strings.NewReader("{}"), nil)
		timedOut := probe.Err() != nil
		cancel()
		if err != nil && !timedOut {
			return want("a response to POST "+path, "%v", err)
		}
	}
	return nil
}

// keepIdle keeps a connection for the check of idle ones.
func (st *stage) keepIdle(conn *rawConn) {
	st.idle = conn
	st.closers = append(st.closers, func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Time{})
}

// leftover is what has been received and not been read.
func (c *rawConn) leftover() []byte {
	p, _ := c.r.Peek(c.r.Buffered())
	return p
}

// largeHead is a little below the limit of docs/protocol.md, and far above what most servers take by default: a user can
// have many groups.
const largeHead = 4<<20 - 64<<10

func checkLargeHead(ctx context.Context, s *suite) error {
	st, path, err := s.path(ctx)
	if err != nil {
		return err
	}
	conn, err := st.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	resp, err := conn.exchange(http.MethodGet, path, "X-Stagecheck-Large: "+strings.Repeat("a", largeHead))
	expected := fmt.Sprintf("the response to GET %s that a request with few headers gets, status %d", path, st.status)
	if err != nil {
		return want(expected, "%v", err)
	}
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusRequestURITooLong, http.StatusRequestHeaderFieldsTooLarge:
		if resp.StatusCode != st.status {
			return want(expected, "status %d", resp.StatusCode)
		}
	}
	return nil
}

// checkExpect does not send a body before the stage asks for it.
func checkExpect(ctx context.Context, s *suite) error {
	st, path, err := s.path(ctx)
	if err != nil {
		return err
	}
	const size = 256 << 10
	conn, err := st.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	err = conn.head(http.MethodPost, path, fmt.Sprintf("Content-Length: %d", size), "Expect: 100-continue")
	if err != nil {
		return err
	}
	resp, err := conn.readResponse(http.MethodPost)
	if err != nil {
		return want("100 Continue or a response, while the body of POST "+path+" has not been sent", "%v", err)
	}
	if resp.StatusCode != http.StatusContinue {
		return nil
	}
	// A stage that responds early closes the connection; its response can be read all the same.
	_, writeErr := conn.Write(pattern(size, "expect"))
	resp, err = conn.readResponse(http.MethodPost)
	switch {
	case err != nil:
		return want("a response to POST "+path+" after the body", "%v", errors.Join(err, writeErr))
	case resp.StatusCode == http.StatusContinue:
		return want("100 Continue once", "a second one")
	case resp.Header.Get(stagev1.HeaderDecline) != "":
		return &mismatch{"no decline of a request whose body the stage has asked for", "100 Continue, and then a decline of POST " + path}
	}
	return nil
}

const largeBody = 16 << 20

func checkLargeBody(ctx context.Context, s *suite) error {
	st, path, err := s.path(ctx)
	if err != nil {
		return err
	}
	body := pattern(largeBody, "large")
	a, err := st.do(ctx, http.MethodPost, path, bytes.NewReader(body), nil)
	if err != nil {
		return want(fmt.Sprintf("a response to POST %s with %d bytes", path, len(body)), "%v", err)
	}
	if a.handed && a.downstream.Length != int64(len(body)) {
		return want(fmt.Sprintf("%d bytes at the next stage, to which POST %s was handed on", len(body), path),
			"%d bytes", a.downstream.Length)
	}
	return st.again(ctx, "after a large body")
}
