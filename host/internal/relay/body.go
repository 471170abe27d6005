package relay

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// maxBuffered is the longest body that is read before the request is sent on.
const maxBuffered = 64 << 10

// When a stage answers, it has mostly read the body to its end, but the goroutine that
// sent it need not have got to say so. It gets some time for that.
const (
	answerGrace = 5 * time.Millisecond   // before the answer
	uploadGrace = 100 * time.Millisecond // behind it
)

// hasBody says whether there may be a body to send.
func hasBody(r *http.Request) bool {
	return r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0
}

// streamed says whether the body of r is sent while it is being read. A client that
// waits for "100 Continue" gets the stage's, so its body is not read early.
func streamed(r *http.Request) bool {
	return hasBody(r) && (r.ContentLength < 0 || r.ContentLength > maxBuffered || expectsContinue(r))
}

func expectsContinue(r *http.Request) bool {
	return listed(r.Header["Expect"], "100-continue")
}

// appendBody reads a body of known length to its end.
func appendBody(dst []byte, r *http.Request) ([]byte, error) {
	begin := len(dst)
	end := begin + int(r.ContentLength)
	if cap(dst) < end {
		dst = append(make([]byte, 0, end), dst...)
	}
	dst = dst[:end]
	if _, err := io.ReadFull(r.Body, dst[begin:]); err != nil {
		return dst[:begin], fmt.Errorf("read the request body: %w", noEOF(err))
	}
	return dst, nil
}

// noEOF is the error of a body that ends too early.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// upload sends a body to a stage on a goroutine of its own, so that the stage's
// answer is seen whenever it comes.
type upload struct {
	r *http.Request
	c *conn
	// done is closed at the end.
	done chan struct{}
	// sent: the body has gone out to its end. Valid when done is closed.
	sent bool
	// readErr is why the body could not be read. Valid when done is closed.
	readErr error
}

func startUpload(r *http.Request, c *conn) *upload {
	u := &upload{r: r, c: c, done: make(chan struct{})}
	go u.run()
	return u
}

func (u *upload) run() {
	buf := copyBuffers.Get().(*copyBuffer)
	defer copyBuffers.Put(buf)
	if u.r.ContentLength >= 0 {
		u.sendN(buf[:], u.r.ContentLength)
	} else {
		u.sendChunks(buf[:])
	}
	close(u.done)
	if u.readErr != nil {
		u.c.abort() // the stage sees a body that breaks off, the other goroutine why
	}
}

func (u *upload) sendN(buf []byte, n int64) {
	for n > 0 {
		m, err := u.r.Body.Read(buf[:min(n, int64(len(buf)))])
		n -= int64(m)
		if m > 0 && !u.write(buf[:m]) {
			return
		}
		if err != nil && n > 0 {
			u.readErr = noEOF(err)
			return
		}
	}
	u.sent = true
}

// chunkRoom is the space that is left in front of a chunk for its size.
const chunkRoom = 8

func (u *upload) sendChunks(buf []byte) {
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

func (u *upload) appendTrailers(dst []byte) []byte {
	dst = append(dst, "0\r\n"...)
	for key, values := range u.r.Trailer {
		if !trailerAllowed(key) {
			continue
		}
		for _, v := range values {
			dst = appendHeader(dst, key, v)
		}
	}
	return append(dst, '\r', '\n')
}

// write returns false if the stage wants no more: what it has to say comes as its answer.
func (u *upload) write(p []byte) bool {
	_, err := u.c.Write(p)
	return err == nil
}

// finished says whether the upload has ended.
func (u *upload) finished() bool {
	select {
	case <-u.done:
		return true
	default:
		return false
	}
}

// endsWithin waits for the end of the upload, but not for long.
func (u *upload) endsWithin(d time.Duration) bool {
	if u.finished() {
		return true
	}
	patience := time.NewTimer(d)
	defer patience.Stop()
	select {
	case <-u.done:
		return true
	case <-patience.C:
		return false
	}
}

// finish waits for the end of the upload when the stage has nothing more to say.
// The body must not be read once the handler has returned, so if the client is slow,
// reading it is made to fail.
func (u *upload) finish(w http.ResponseWriter) {
	if u.endsWithin(uploadGrace) {
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
	u.c.abort()
	<-u.done
}
