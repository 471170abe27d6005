package relay

import (
	"context"
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
		if _, err := stage.Write(early); err != nil || !copyOn(stage, client) {
			endBoth()
			return
		}
		_ = stage.CloseWrite()
	}()
	if stage.copyTo(client) && closeWrite(client) {
		// The client may go on sending, for as long as there is somebody to read it.
		stage.awaitHangup()
	}
	endBoth()
	<-toStage
}

// closeWrite ends one direction of a connection, if it can.
func closeWrite(c net.Conn) bool {
	h, ok := c.(interface{ CloseWrite() error })
	return ok && h.CloseWrite() == nil
}

// copyOn copies until the end of src, and says whether it got there.
func copyOn(dst io.Writer, src io.Reader) bool {
	buf := buffers.Get().(*buffer)
	defer buffers.Put(buf)
	for {
		n, err := src.Read(buf[:])
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				return false
			}
		}
		if err != nil {
			return err == io.EOF
		}
	}
}

// copyTo copies what the stage sends until it ends its direction, and says whether
// it got there.
func (c *conn) copyTo(dst io.Writer) bool {
	for {
		if len(c.buffered()) == 0 {
			if err := c.fill(true); err != nil {
				return err == io.EOF
			}
		}
		if _, err := dst.Write(c.buffered()); err != nil {
			return false
		}
		c.discard(len(c.buffered()))
	}
}
