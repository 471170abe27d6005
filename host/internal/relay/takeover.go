package relay

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"

	"github.com/catena-dev/catena/host/internal/relay/h1"
	"github.com/catena-dev/catena/internal/http1"
)

// isRaw reports whether a response to r is passed on as the stage has it, on the client's connection itself: it
// switches protocols, or is what a server responds instead to which the stage has passed r on. Neither has headers of
// the host's filters, as with kube-apiserver, which copies them from one connection to the other.
func isRaw(r *http.Request, resp *h1.Response, upload *h1.Upload) bool {
	if resp.Status == http.StatusSwitchingProtocols {
		return true
	}
	return resp.Raw && r.ProtoMajor == 1 && h1.UpgradeOf(r) != "" && (upload == nil || upload.Finished())
}

// takeOver takes the client's connection over and passes the response on. After a 101 it connects client and stage
// until both have ended; after any other response, both connections end.
func (x *request) takeOver() verdict {
	client, rw, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		return broken
	}
	defer client.Close()
	status := x.response.Status
	_, _ = rw.WriteString("HTTP/1.1 " + strconv.Itoa(status) + " " + http.StatusText(status) + "\r\n")
	if status == http.StatusSwitchingProtocols {
		_, _ = rw.WriteString("Connection: Upgrade\r\nUpgrade: " + x.response.Upgrade + "\r\n")
	}
	if x.response.Chunked {
		_, _ = rw.WriteString("Transfer-Encoding: chunked\r\n")
	}
	for _, f := range x.response.Fields {
		switch {
		case h1.HostOnly(f.Key):
			x.report(f)
		case f.Key != "Trailer" && x.passed(f):
			_, _ = rw.WriteString(f.Key + ": " + f.Value + "\r\n")
		}
	}
	if _, err := rw.WriteString("\r\n"); err != nil || rw.Flush() != nil {
		return clientGone
	}
	if status == http.StatusSwitchingProtocols {
		early, err := rw.Reader.Peek(rw.Reader.Buffered())
		if err != nil {
			return broken
		}
		x.conn.Splice(x.r.Context(), client, early)
		return upgraded
	}
	body := &takenOver{Writer: rw.Writer, body: rw.Writer, header: http.Header{}}
	if x.response.Chunked && x.response.HasBody(x.r.Method) {
		body.chunks = httputil.NewChunkedWriter(rw.Writer)
		body.body = body.chunks
	}
	x.w = body
	err = x.writeBody()
	if err == nil {
		err = body.end()
	}
	switch {
	case err == nil:
		return responded
	case errors.Is(err, errClientGone):
		return clientGone
	}
	_ = rw.Flush()
	return broken
}

// takenOver writes a body to a connection that has been taken over. Its length is in the head, it comes in chunks, or
// it ends with the connection.
type takenOver struct {
	*bufio.Writer
	body   io.Writer
	chunks io.WriteCloser // may be nil
	header http.Header
}

// Header has the trailers.
func (w *takenOver) Header() http.Header { return w.header }

// WriteHeader does nothing: the head is written.
func (w *takenOver) WriteHeader(int) {}

// Write implements http.ResponseWriter.
func (w *takenOver) Write(p []byte) (int, error) { return w.body.Write(p) }

// Flush implements http.Flusher.
func (w *takenOver) Flush() { _ = w.Writer.Flush() }

// end writes what follows the body.
func (w *takenOver) end() error {
	if w.chunks != nil {
		_ = w.chunks.Close()
		for key, values := range w.header {
			for _, value := range values {
				_, _ = w.Writer.Write(http1.AppendField(nil, strings.TrimPrefix(key, http.TrailerPrefix), value))
			}
		}
		_, _ = w.WriteString("\r\n")
	}
	return w.Writer.Flush() // with the error of a write before
}
