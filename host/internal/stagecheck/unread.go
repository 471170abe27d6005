package stagecheck

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// quiet is how long a stage is listened to that should say nothing more. On a slow machine a fault may be missed, and
// none is invented.
const quiet = 500 * time.Millisecond

// checkUnread sends bodies that are requests themselves: to what the stage serves, and to what it declines.
func checkUnread(ctx context.Context, s *suite) error {
	st, path, err := s.path(ctx)
	if err != nil {
		return err
	}
	if err := st.leaveBody(ctx, path); err != nil {
		return err
	}
	st, declined, err := s.declined(ctx)
	if errors.As(err, new(skip)) {
		return nil
	}
	if err != nil {
		return err
	}
	return st.leaveBody(ctx, declined)
}

// leaveBody makes a request whose body may be left unread, and counts the responses that come to those that follow it.
func (st *stage) leaveBody(ctx context.Context, path string) error {
	conn, err := st.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	body := "GET " + st.path + " HTTP/1.1\r\nHost: stage\r\nX-Catena-Request: 1\r\n" +
		"X-Catena-User: {\"name\":\"nobody\"}\r\n\r\n"
	length := fmt.Sprint("Content-Length: ", len(body))
	if err := conn.request(http.MethodPost, path, body, "X-Catena-Timeout: 30000", length); err != nil {
		return fmt.Errorf("write the request: %w", err)
	}
	what := fmt.Sprintf("POST %s with a body that is a request", path)
	resp, err := conn.readResponse(http.MethodPost)
	switch {
	case err != nil:
		return want("a response to "+what, "%v", err)
	case resp.Close || strings.EqualFold(resp.Header.Get("Connection"), "close"):
		return nil
	}
	for range 2 {
		if _, err := conn.exchange(http.MethodGet, st.path); err != nil {
			return want("a response to GET "+st.path+" on the connection of a "+what, "%v", err)
		}
	}
	_ = conn.SetReadDeadline(time.Now().Add(quiet))
	if more, _ := conn.r.Peek(1); len(more) > 0 {
		return want(what+": one response, and the body discarded or the connection closed",
			"a response to the body, too: %.60q", conn.leftover())
	}
	return nil
}
