package sdk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/http/httputil"

	"github.com/catena-dev/catena/internal/frames"
	"github.com/catena-dev/catena/internal/http1"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Caller asks the stages downstream for a response: into a writer, as a handler does, or for the stage to look at.
type Caller interface {
	http.Handler
	// RoundTrip sends a request to the stages downstream, for the request from the host whose context, or one derived from that, r has. It
	// is for stages that change a response, and returns when the head of that has come; Frames splits the body of a watch. The
	// caller has to close the body. Headers that concern one connection only are left out, in both directions, so that all of the
	// response can be copied. It does not switch protocols: ServeHTTP does.
	//
	// A stream ends when the stage drains: see DrainingFrom. The response may be compressed, and in any encoding that the client
	// takes: a stage that reads it sets Accept, and deletes Accept-Encoding, before.
	RoundTrip(r *http.Request) (*http.Response, error)
}

// dropHopByHop removes the headers that concern one connection only (RFC 9110, 7.6.1).
func dropHopByHop(h http.Header) {
	connection := h["Connection"]
	maps.DeleteFunc(h, func(key string, _ []string) bool {
		return http1.HopByHop(key) || http1.Listed(connection, key)
	})
}

func (c call) RoundTrip(r *http.Request) (*http.Response, error) {
	x := exchangeFrom(r.Context())
	switch {
	case x == nil || x.id == "":
		return nil, errors.New("the request did not come from the host, so there is no next stage")
	case x.writer.Refused():
		return nil, errors.New("the request was declined, and the host has sent it to the next stage")
	}
	r = withHostHeader(r, stagev1.HeaderNext, x.id)
	out := r.Clone(r.Context())
	if r.ContentLength == 0 {
		out.Body = nil
	}
	out.RequestURI, out.Close = "", false
	dropHopByHop(out.Header)
	rewrite(&httputil.ProxyRequest{In: r, Out: out}, c.token)
	resp, err := c.proxy.Transport.RoundTrip(out)
	if err != nil {
		return nil, fmt.Errorf("call the next stage: %w", err)
	}
	dropHopByHop(resp.Header)
	return resp, endWithDrain(resp)
}

// maxFrame is how long an event of a watch may be: more than any object that etcd takes.
const maxFrame = 16 << 20

// Frames returns the events of the response to a watch one by one, as they come, in JSON, protobuf or CBOR as its
// Content-Type says; written one after the other, they are the body. An event is valid until the next one. The error is
// the last of the sequence, and means that the body breaks off, is compressed or does not consist of events. The caller
// has to close the body.
func Frames(resp *http.Response) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		s := frames.Splitter{Encoding: frames.EncodingOf(resp.Header.Get("Content-Type")), Max: maxFrame}
		if encoding := resp.Header.Get("Content-Encoding"); s.Encoding == frames.None || encoding != "" {
			yield(nil, fmt.Errorf("no events: a body of type %q, encoded as %q", resp.Header.Get("Content-Type"), encoding))
			return
		}
		piece := make([]byte, 32<<10)
		for {
			n, err := resp.Body.Read(piece)
			for frame := range s.Add(piece[:n]) {
				if !yield(frame, nil) {
					return
				}
			}
			if err == nil {
				err = s.Err()
			}
			if err == io.EOF && len(bytes.TrimSpace(s.Rest())) > 0 {
				err = io.ErrUnexpectedEOF
			}
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(nil, fmt.Errorf("events of the next stage: %w", err))
				return
			}
		}
	}
}
