package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
)

// switchProtocols passes on a 101 and then connects client and stage until both
// have ended.
func (x *exchange) switchProtocols(a *answer) verdict {
	h := x.w.Header()
	x.writeHeaders(a)
	delete(h, "Content-Type")
	h.Set("Connection", "Upgrade")
	h.Set("Upgrade", a.upgrade)
	// The server sends the head when the connection is taken over.
	x.w.WriteHeader(http.StatusSwitchingProtocols)
	client, rw, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		return broken
	}
	early, err := rw.Reader.Peek(rw.Reader.Buffered())
	if err == nil {
		err = rw.Writer.Flush()
	}
	if err != nil {
		_ = client.Close()
		return broken
	}
	x.splice(client, early)
	return upgraded
}

// splice copies in both directions. The end of one direction is passed on as such;
// an error, or the end of the request's context, ends both.
func (x *exchange) splice(client net.Conn, early []byte) {
	stage := x.c
	endBoth := func() {
		_ = client.Close()
		stage.abort()
	}
	x.stop()
	x.stop = context.AfterFunc(x.r.Context(), endBoth)
	toStage := make(chan struct{})
	go func() {
		defer close(toStage)
		if stage.copyFrom(early, client) != nil {
			endBoth()
		}
	}()
	if stage.copyTo(client) == nil && closeWrite(client) == nil {
		// The client may go on sending, for as long as there is somebody to read it.
		stage.awaitHangup()
	}
	endBoth()
	<-toStage
}

// closeWrite ends one direction of a connection.
func closeWrite(c net.Conn) error {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return errors.ErrUnsupported
}

// copyFrom sends what has come early, and then what comes from src until its end.
// It also returns without an error if the stage takes no more: what the stage had
// to say before that is still on its way.
func (c *conn) copyFrom(early []byte, src io.Reader) error {
	if _, err := c.Write(early); err != nil {
		return nil
	}
	buf := copyBuffers.Get().(*copyBuffer)
	defer copyBuffers.Put(buf)
	for {
		n, err := src.Read(buf[:])
		if n > 0 {
			if _, err := c.Write(buf[:n]); err != nil {
				return nil
			}
		}
		if err == io.EOF {
			_ = c.CloseWrite()
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// copyTo passes on what the stage sends until it ends its direction.
func (c *conn) copyTo(dst io.Writer) error {
	for {
		if len(c.buffered()) == 0 {
			if err := c.fill(); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
		}
		if _, err := dst.Write(c.buffered()); err != nil {
			return err
		}
		c.discard(len(c.buffered()))
	}
}
