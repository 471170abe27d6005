package relay

import (
	"errors"
	"maps"
	"net/http"
	"net/textproto"
	"strings"
	"time"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/relay/h1"
	"github.com/catena-dev/catena/internal/http1"
	"github.com/catena-dev/catena/sdk/stagev1/header"
)

// added reports whether a header of a response is added to those that the filters
// upstream of the relay have set, instead of replacing them.
func added(key string) bool {
	switch key {
	case "Warning", "Vary", "Set-Cookie", "Link":
		return true
	case "Strict-Transport-Security":
		return true // clients go by the first one
	}
	return false
}

// passed reports whether a header of the response is for the client.
func (x *request) passed(f h1.Field) bool {
	if !x.kubernetes && !ofResponse(f, x.r.URL.Path) {
		return false
	}
	key, connection, propagator := f.Key, x.response.Connection, x.chain.config.Propagator
	return (propagator == nil || !propagator.HostResponseHeader(key)) && !http1.HopByHop(key) && !h1.HostOnly(key) &&
		(len(connection) == 0 || !http1.Listed(connection, key))
}

// writeHeaders puts the headers of the response into those of the client's.
func (x *request) writeHeaders() {
	h := x.w.Header()
	typed, n := false, 0
	for _, f := range x.response.Fields {
		typed = typed || f.Key == "Content-Type"
		if !x.passed(f) {
			continue
		}
		n++
		if !added(f.Key) && h[f.Key] != nil {
			delete(h, f.Key)
		}
	}
	values := make([]string, 0, n)
	for _, f := range x.response.Fields {
		switch {
		case h1.HostOnly(f.Key):
			x.report(f)
		case f.Key == "Trailer":
			http1.Elements([]string{f.Value}, func(key string) bool {
				if !x.trailerPassed(key) {
					return true
				}
				announced := fits(x, &x.sent.trailers, len(key), bounds.ResponseTrailers)
				if announced {
					h.Add("Trailer", key)
				}
				return announced
			})
		case !x.passed(f):
		case h[f.Key] != nil:
			h[f.Key] = append(h[f.Key], f.Value)
		default:
			values = append(values, f.Value)
			h[f.Key] = values[len(values)-1 : len(values) : len(values)]
		}
	}
	if !typed || !x.kubernetes && worksForOthers(x.r) { // such a script needs a type
		h["Content-Type"] = nil // keeps the server from guessing
	}
}

// report hands a header of a response that is meant for the host to the propagator.
func (x *request) report(f h1.Field) {
	if p := x.chain.config.Propagator; p != nil && h1.ForHost(f.Key) && f.Key != header.Decline {
		serves := !x.response.Declined && !x.role.hasCalled() && (f.Key != header.Audit || x.role.serve())
		p.ResponseHeader(x.r, Sender{Stage: x.stage, Serves: serves, Kubernetes: x.kubernetes, Had: time.Since(x.began)}, f.Key, f.Value)
	}
}

// trailerPassed reports whether a trailer of the response is for the client.
func (x *request) trailerPassed(key string) bool {
	propagator := x.chain.config.Propagator
	return h1.TrailerAllowed(key) && (propagator == nil || !propagator.HostResponseHeader(textproto.CanonicalMIMEHeaderKey(key)))
}

// inform passes on an informational response, see the package's documentation.
func (x *request) inform() {
	if !x.r.ProtoAtLeast(1, 1) {
		return
	}
	w := x.w
	if inner := unwrapped(w); inner != w {
		if _, timed := x.r.Context().Deadline(); timed {
			return
		}
		w = inner
	}
	h := w.Header()
	before := maps.Clone(h)
	clear(h)
	for _, f := range x.response.Fields {
		if x.passed(f) && f.Key != "Content-Length" {
			h.Add(f.Key, f.Value)
		}
	}
	w.WriteHeader(x.response.Status)
	x.begun = true
	clear(h)
	maps.Copy(h, before)
}

// unwrapped returns the writer of the server that filters have wrapped.
func unwrapped(w http.ResponseWriter) http.ResponseWriter {
	for {
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = wrapper.Unwrap()
	}
}

// maxSilent is the length of a response, in bytes, up to which a stage's server finds
// out the length if the handler does not flush. The client's server does so for as
// many bytes over HTTP/1.1, and for some more, which come here in chunks, over HTTP/2.
const maxSilent = 2048

// writeBody passes on the body of the response, up to its end.
func (x *request) writeBody() error {
	if !x.response.HasBody(x.r.Method) {
		return nil
	}
	var err error
	if x.response.Chunked && x.watch != nil {
		err = x.watch.copy()
	} else {
		err = x.conn.CopyBody(x.r.Context(), x, &x.response)
	}
	if err != nil && err != errWatchOver {
		return err
	}
	if x.response.Chunked && !x.sent.flushed && (x.r.ProtoMajor < 2 || x.sent.written <= maxSilent) {
		x.Flush() // keeps the server from finding out the length
	}
	return err
}

// errClientGone reports that the client takes no more of the response.
var errClientGone = errors.New("the client takes no more")

// Write implements h1.Sink.
func (x *request) Write(p []byte) (int, error) {
	x.sent.written += len(p)
	n, err := x.w.Write(p)
	if err != nil {
		err = errClientGone
	}
	return n, err
}

// Flush implements h1.Sink.
func (x *request) Flush() {
	x.sent.flushed = true
	if f, ok := x.w.(http.Flusher); ok {
		f.Flush()
		return
	}
	_ = http.NewResponseController(x.w).Flush()
}

// Trailer implements h1.Sink.
func (x *request) Trailer(f h1.Field) {
	if h1.HostOnly(f.Key) {
		x.report(f)
	} else if x.trailerPassed(f.Key) && fits(x, &x.sent.trailers, len(f.Key)+len(f.Value), bounds.ResponseTrailers) {
		x.w.Header().Add(http.TrailerPrefix+f.Key, strings.Clone(f.Value)) // the server keeps it until the client has it
	}
}

// fieldCost is what a field counts in addition to its bytes, where fields are kept for a client.
const fieldCost = 64

// fits counts a field of n bytes, or the announcement of a trailer, and reports whether it is within the bound.
func fits(x *request, sum *int, n, bound int) bool {
	before := *sum
	*sum += n + fieldCost
	if before <= bound && *sum > bound {
		x.limited(h1.ErrNoRoom)
	}
	return *sum <= bound
}
