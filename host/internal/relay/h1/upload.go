package h1

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/catena-dev/catena/internal/http1"
)

// uploadGrace is how long an upload may go on after the response has been read: mostly,
// the stage has read the body to its end, and only the goroutine that sent it has not
// reported that yet.
const uploadGrace = 100 * time.Millisecond

// Upload sends the body of a request to a stage on a goroutine of its own, so that the
// stage's response is seen whenever it comes. Finish must be called in the end.
type Upload struct {
	r *http.Request
	c *Conn
	// done is closed at the end.
	done chan struct{}
	// sent: the body has gone out to its end. Valid when done is closed.
	sent bool
	// readErr is why the body could not be read. Valid when done is closed.
	readErr error
}

// StartUpload begins to send the body of r, framed as AppendRequest has announced it. If
// the body cannot be read to its end, the connection is aborted.
func (c *Conn) StartUpload(r *http.Request) *Upload {
	u := &Upload{r: r, c: c, done: make(chan struct{})}
	go u.run()
	return u
}

// Finished reports whether the upload has ended.
func (u *Upload) Finished() bool {
	select {
	case <-u.done:
		return true
	default:
		return false
	}
}

// FinishedWithin reports whether the upload ends within d.
func (u *Upload) FinishedWithin(d time.Duration) bool {
	if u.Finished() {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-u.done:
		return true
	case <-timer.C:
		return false
	}
}

// Sent reports whether the upload has ended and the whole body was sent.
func (u *Upload) Sent() bool { return u.Finished() && u.sent }

// ReadErr returns why the body could not be read, nil if it could or if the upload has not
// ended.
func (u *Upload) ReadErr() error {
	if !u.Finished() {
		return nil
	}
	return u.readErr
}

// Finish returns when the upload has ended, which the stage no longer waits for. The body
// must not be read once the handler has returned, so after a moment reading it is
// made to fail by w, the client's writer, and the connection is aborted.
func (u *Upload) Finish(w http.ResponseWriter) {
	if u.FinishedWithin(uploadGrace) {
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
	u.c.Abort()
	<-u.done
}

func (u *Upload) run() {
	defer u.end()
	buf := copyBuffers.Get().(*copyBuffer)
	defer copyBuffers.Put(buf)
	if u.r.ContentLength >= 0 {
		u.sendN(buf[:], u.r.ContentLength)
	} else {
		u.sendChunks(buf[:])
	}
}

// end ends the upload, also if what reads the body, which is the server's, has panicked.
func (u *Upload) end() {
	if p := recover(); p != nil {
		u.sent, u.readErr = false, fmt.Errorf("read the body: panic: %v", p)
	}
	close(u.done)
	if u.readErr != nil {
		u.c.Abort() // the stage sees a body that breaks off, the other goroutine why
	}
}

func (u *Upload) sendN(buf []byte, n int64) {
	for n > 0 {
		m, err := u.r.Body.Read(buf[:min(n, int64(len(buf)))])
		n -= int64(m)
		if m > 0 && !u.write(buf[:m]) {
			return
		}
		if err != nil && n > 0 {
			if u.readErr = err; err == io.EOF {
				u.readErr = io.ErrUnexpectedEOF
			}
			return
		}
	}
	u.sent = true
}

func (u *Upload) sendChunks(buf []byte) {
	for {
		m, err := u.r.Body.Read(buf[chunkRoom : len(buf)-2])
		if m > 0 && !u.write(frameChunk(buf, m)) {
			return
		}
		if err == io.EOF {
			u.sent = u.write(u.appendTrailers(buf[:0]))
			return
		}
		if err != nil {
			u.readErr = err
			return
		}
	}
}

// chunkRoom is the space that is left before a chunk for its size.
const chunkRoom = 8

// frameChunk puts size and end around the n bytes at chunkRoom.
func frameChunk(buf []byte, n int) []byte {
	var size [chunkRoom]byte
	line := append(strconv.AppendInt(size[:0], int64(n), 16), '\r', '\n')
	begin := chunkRoom - len(line)
	copy(buf[begin:], line)
	end := chunkRoom + n
	buf[end], buf[end+1] = '\r', '\n'
	return buf[begin : end+2]
}

func (u *Upload) appendTrailers(dst []byte) []byte {
	dst = append(dst, "0\r\n"...)
	for key, values := range Trailers(u.r) {
		if !TrailerAllowed(key) {
			continue
		}
		for _, v := range values {
			dst = http1.AppendField(dst, key, v)
		}
	}
	return append(dst, '\r', '\n')
}

// write reports whether the stage takes more. If not, its response says why.
func (u *Upload) write(p []byte) bool {
	_, err := u.c.Write(p)
	return err == nil
}
