package stagetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"time"

	"github.com/catena-dev/catena/internal/requestinfo"
	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// relay sends requests to the stage that it claims, and to what is downstream what it does not claim, or declines.
type relay struct {
	stage     *Stage
	transport *http.Transport
	proxy     *httputil.ReverseProxy
}

// maxBuffered is the longest body that is sent before the stage asks for it.
const maxBuffered = 64 << 10

func newRelay(s *Stage) *relay {
	r := &relay{stage: s}
	r.transport = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", s.Socket())
		},
		DisableCompression:    true,
		ExpectContinueTimeout: timeout,
	}
	r.proxy = &httputil.ReverseProxy{
		Transport:      r.transport,
		Rewrite:        r.rewrite,
		ModifyResponse: r.filterResponse,
		ErrorHandler:   r.failed,
	}
	return r
}

// hop is a client's request on its way to the stage, found in its context.
type hop struct {
	id string
	// replay is the request for Next.
	replay *http.Request
}

type hopKey struct{}

func hopFrom(r *http.Request) hop { return r.Context().Value(hopKey{}).(hop) }

// ServeHTTP serves a client, or the stage as one. What the test sends as a stage upstream that calls its delegate needs
// no claim.
func (r *relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	call := r.stage.records.find(req.Header.Get(callHeader))
	req.Header.Del(callHeader)
	if req.Header.Get(stagev1.HeaderDelegate) == "" && !r.stage.Claimed(req.URL.Path) {
		call.note(func(c *record) { c.unclaimed = true })
		r.next(req).ServeHTTP(w, req)
		return
	}
	req = req.WithContext(context.WithValue(req.Context(), recordKey{}, call))
	first := new(http.Request)
	*first = *req
	if req.ContentLength > 0 && req.ContentLength <= maxBuffered {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		first.Body = io.NopCloser(bytes.NewReader(body))
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	h := hop{id: r.stage.inFlight.begin(req), replay: req}
	defer r.stage.inFlight.end(h.id)
	r.proxy.ServeHTTP(w, first.WithContext(context.WithValue(req.Context(), hopKey{}, h)))
}

// rewrite adds what the host adds. Headers of the protocol that the test has set stay.
func (r *relay) rewrite(p *httputil.ProxyRequest) {
	out := p.Out
	out.URL.Scheme, out.URL.Host, out.URL.RawQuery = "http", "stage", p.In.URL.RawQuery
	for _, key := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values, ok := p.In.Header[key]; ok {
			out.Header[key] = values
		}
	}
	add := func(key, value string) {
		if _, ok := out.Header[key]; !ok {
			out.Header.Set(key, value)
		}
	}
	add(stagev1.HeaderRequest, hopFrom(p.In).id)
	add(stagev1.HeaderUser, encodeUser(r.userOf(p.In)))
	if info, err := requestinfo.Factory().NewRequestInfo(p.In); err == nil {
		_, text, _ := strings.Cut(string(requestinfo.Append(nil, info)), ": ")
		add(stagev1.HeaderRequestInfo, strings.TrimSpace(text))
	}
	add(stagev1.HeaderClient, p.In.RemoteAddr)
	add(stagev1.HeaderAuditLevel, "Metadata")
	add(stagev1.HeaderReceived, strconv.FormatInt(time.Now().UnixMicro(), 10))
	if p.In.ContentLength < 0 || p.In.ContentLength > maxBuffered {
		if out.Header.Get("Expect") == "" {
			add(stagev1.HeaderAdded, "Expect")
		}
		out.Header.Set("Expect", "100-continue")
	}
}

// declinedError is the error for a request that the stage has declined.
type declinedError struct{ warnings []string }

func (declinedError) Error() string { return "declined" }

// filterResponse finds declines, records the headers for the host, and removes them.
func (r *relay) filterResponse(resp *http.Response) error {
	recordFrom(resp.Request).annotate(resp.Header[stagev1.HeaderAudit])
	declined := resp.Header.Get(stagev1.HeaderDecline) != ""
	for _, key := range []string{stagev1.HeaderDecline, stagev1.HeaderAudit, stagev1.HeaderLatency} {
		resp.Header.Del(key)
	}
	if declined {
		_ = resp.Body.Close()
		return declinedError{resp.Header["Warning"]}
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Body = &trailerBody{ReadCloser: resp.Body, resp: resp}
	}
	return nil
}

// trailerBody records the trailers for the host.
type trailerBody struct {
	io.ReadCloser
	resp *http.Response
}

func (b *trailerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		recordFrom(b.resp.Request).annotate(b.resp.Trailer[stagev1.HeaderAudit])
		delete(b.resp.Trailer, stagev1.HeaderAudit)
	}
	return n, err
}

func (r *relay) failed(w http.ResponseWriter, req *http.Request, err error) {
	declined, ok := errors.AsType[declinedError](err)
	if !ok {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	r.stage.declined.Add(1)
	recordFrom(req).note(func(rec *record) { rec.declined = true })
	for _, text := range declined.warnings {
		w.Header().Add("Warning", text)
	}
	r.next(req).ServeHTTP(w, hopFrom(req).replay)
}

// next returns what serves a request that the stage does not.
func (r *relay) next(req *http.Request) http.Handler {
	opts := r.stage.opts
	switch {
	case ownFrom(req.Context()) != nil && opts.API != nil:
		return opts.API
	case opts.Next != nil:
		return opts.Next
	}
	return http.HandlerFunc(r.notFound)
}

// notFound says what a test has to change if it expects the path to be served.
func (r *relay) notFound(w http.ResponseWriter, req *http.Request) {
	text := "404 page not found: stagetest serves nothing at " + req.URL.Path
	if s := r.stage; !s.Claimed(req.URL.Path) {
		text += fmt.Sprintf(": stage %q does not claim it, and claims %v", s.name, s.Claims())
	}
	option := "Next"
	if ownFrom(req.Context()) != nil {
		option = "API"
	}
	http.Error(w, text+"; Options."+option+" is not set", http.StatusNotFound)
}

// userOf returns whose request it is, unless the test has set another.
func (r *relay) userOf(req *http.Request) *sdk.User {
	switch {
	case ownFrom(req.Context()) != nil:
		return r.stage.ownUser()
	case r.stage.opts.User != nil:
		return r.stage.opts.User
	}
	return &sdk.User{Name: "somebody", Groups: []string{"system:authenticated"}}
}

func encodeUser(u *sdk.User) string {
	text, _ := json.Marshal(u)
	return string(text)
}
