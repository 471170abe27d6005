package stagetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"time"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// relay sends clients' requests to the stage, and to Next what that declines.
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

// ServeHTTP serves a client.
func (r *relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	record := r.stage.records.find(req.Header.Get(callHeader))
	req.Header.Del(callHeader)
	req = req.WithContext(context.WithValue(req.Context(), recordKey{}, record))
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
	add(stagev1.HeaderUser, r.stage.user())
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
	r.stage.next().ServeHTTP(w, hopFrom(req).replay)
}

func (s *Stage) next() http.Handler {
	if s.opts.Next == nil {
		return http.NotFoundHandler()
	}
	return s.opts.Next
}

func (s *Stage) user() string {
	u := s.opts.User
	if u == nil {
		u = &sdk.User{Name: "somebody", Groups: []string{"system:authenticated"}}
	}
	return encodeUser(u)
}

func encodeUser(u *sdk.User) string {
	text, _ := json.Marshal(u)
	return string(text)
}
