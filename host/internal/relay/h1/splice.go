package h1

import (
	"context"
	"errors"
	"io"
	"net"
)

// Splice connects a client with the stage after a 101, and returns when both directions
// have ended. Early is what the client has sent already. The end of one direction is
// passed on as such; an error, or the end of ctx, ends both. Both connections are
// closed then.
func (c *Conn) Splice(ctx context.Context, client net.Conn, early []byte) {
	endBoth := func() {
		_ = client.Close()
		c.Abort()
	}
	defer context.AfterFunc(ctx, endBoth)()
	toStage := make(chan struct{})
	go func() {
		defer close(toStage)
		defer func() {
			if recover() != nil { // of what reads from the client, which is the server's
				endBoth()
			}
		}()
		if c.copyFrom(early, client) != nil {
			endBoth()
		}
	}()
	if c.copyTo(client) == nil && closeWrite(client) == nil {
		// The client may go on sending for as long as the stage reads.
		c.awaitHangup()
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
func (c *Conn) copyFrom(early []byte, src io.Reader) error {
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
			_ = c.conn.CloseWrite()
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// copyTo passes on what the stage sends until it ends its direction.
func (c *Conn) copyTo(dst io.Writer) error {
	for {
		if len(c.in.Buffered()) == 0 {
			if err := c.in.Fill(); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
		}
		if _, err := dst.Write(c.in.Buffered()); err != nil {
			return err
		}
		c.in.Discard(len(c.in.Buffered()))
	}
}
