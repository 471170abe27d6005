package trial

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/local"
	"github.com/catena-dev/catena/host/internal/panics"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/host/internal/shadow"
)

// Tap passes requests to the chain, and hands a sample of them to the shadow under way.
type Tap struct {
	chain   http.Handler
	current atomic.Pointer[tapped]
}

// NewTap returns a tap before a chain.
func NewTap(chain http.Handler) *Tap { return &Tap{chain: chain} }

// tapped is a shadow and what it compares.
type tapped struct {
	*shadow.Shadow
	// groups are those of which writes are compared too; none if it is empty.
	groups map[string]bool
	// documents reports whether discovery and OpenAPI are compared.
	documents bool
}

// ServeHTTP implements http.Handler.
func (t *Tap) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s := t.current.Load(); s != nil && s.Sampled() {
		s.serve(w, r, t.chain)
		return
	}
	t.chain.ServeHTTP(w, r)
}

// serve offers a request to the shadow when its client has been served, if the stage that is compared has taken it.
func (s *tapped) serve(w http.ResponseWriter, r *http.Request, chain http.Handler) {
	target, ok := front.TargetOf(r)
	resource := shadow.Resource(target)
	var body *keptBody
	switch {
	case !ok || r.Header.Get("Upgrade") != "":
		chain.ServeHTTP(w, r)
		return
	case shadow.Comparable(r.Method, r.URL, resource) && (s.documents || resource.Name != ""):
	case s.groups[resource.Group] && shadow.DryRunnable(r.Method, resource) && r.ContentLength > 0 && r.ContentLength <= shadow.MaxBody:
		body = &keptBody{ReadCloser: r.Body}
	default:
		chain.ServeHTTP(w, r)
		return
	}
	q := shadow.Request{Method: r.Method, URL: *r.URL, Header: shadow.Headers(r.Header), Resource: resource, As: front.Again(r.Context())}
	ctx, hops := relay.WithHops(r.Context())
	r = r.WithContext(ctx)
	if body != nil {
		r.Body = body
	}
	chain.ServeHTTP(w, r)
	if !hops.Took(s.Stage()) {
		return
	}
	if body != nil {
		if int64(body.kept.Len()) != r.ContentLength {
			return
		}
		q.Body = body.kept.Bytes()
	}
	s.Offer(q)
}

// keptBody keeps a body while it is read.
type keptBody struct {
	io.ReadCloser
	kept bytes.Buffer
}

func (b *keptBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.kept.Write(p[:n])
	return n, err
}

// asker sends the requests of a shadow to a stage: to the process that serves, or to the one that has a socket.
type asker struct {
	chain  http.Handler
	stage  string
	socket string
}

var errNoResponse = errors.New("the response was broken off")

// ask sends a request straight to the stage: its client has passed the filters with it.
func (a *asker) ask(ctx context.Context, to shadow.Side, q shadow.Request) (resp shadow.Response, err error) {
	socket := ""
	if to == shadow.New {
		socket = a.socket
	}
	r, err := http.NewRequestWithContext(relay.WithStage(ctx, a.stage, socket), q.Method, "http://catena", bytes.NewReader(q.Body))
	if err != nil {
		return resp, err
	}
	if len(q.Body) == 0 {
		r.Body = http.NoBody
	}
	u := q.URL
	r.URL, r.RequestURI, r.Header = &u, u.RequestURI(), q.Header.Clone()
	w := &shadowResponse{Response: local.NewResponse()}
	err = panics.Call(func() error {
		a.chain.ServeHTTP(w, r)
		return w.failure
	})
	switch {
	case w.tooLarge:
		return resp, shadow.ErrTooLarge
	case errors.Is(err, http.ErrAbortHandler):
		return resp, errNoResponse
	case err != nil:
		return resp, err
	}
	return shadow.Response{Status: w.Code, Header: w.Header(), Body: w.Body.Bytes()}, nil
}

// shadowResponse keeps a response to a shadow's request, if it is not too large.
type shadowResponse struct {
	*local.Response
	tooLarge bool
	// failure is why the stage did not respond.
	failure error
}

// Failed takes why the stage did not respond. The chain calls it for such a response instead of writing to it.
func (w *shadowResponse) Failed(err error) { w.failure = err }

func (w *shadowResponse) Write(b []byte) (int, error) {
	if w.Body.Len()+len(b) > shadow.MaxResponse {
		w.tooLarge = true
		return 0, shadow.ErrTooLarge
	}
	return w.Response.Write(b)
}
