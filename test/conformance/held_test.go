package conformance

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// hold sends a request over a connection of its own without its body: the server has begun
// with it, as its 100 (Continue) shows, and cannot end. Closing aborts the request.
func (c *client) hold(ctx context.Context, r heldRequest) (io.Closer, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: example\r\nAuthorization: Bearer %s-token\r\n"+
		"Content-Type: application/json\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n", r.Request, r.As)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil && resp.StatusCode != http.StatusContinue {
		err = fmt.Errorf("the server does not wait for the body, but responds with %s", resp.Status)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("hold %s: %w", r.Request, err), conn.Close())
	}
	return conn, nil
}

// dial opens a connection for HTTP/1.1 that ends with the context's deadline.
func (c *client) dial(ctx context.Context) (*tls.Conn, error) {
	config := c.tls.Clone()
	config.NextProtos = []string{"http/1.1"}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", strings.TrimPrefix(c.server.URL, "https://"))
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		err = conn.SetDeadline(deadline)
	}
	return conn.(*tls.Conn), err
}
