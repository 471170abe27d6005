// Package local makes requests to the chain from within the host, as the server itself. They pass all filters.
package local

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/host/internal/front"
)

// Client makes requests without a connection. It is for responses that end, and keeps each in memory.
type Client struct{ front *front.Frontend }

// NewClient returns the client of a frontend, which needs to serve only when requests are made.
func NewClient(f *front.Frontend) *Client { return &Client{f} }

// Config returns what a client of client-go with this user agent is made from.
func (c *Client) Config(userAgent string) (*rest.Config, *http.Client) {
	return &rest.Config{Host: c.front.LocalURL(), UserAgent: userAgent}, &http.Client{Transport: c}
}

// RoundTrip implements http.RoundTripper.
func (c *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	served := r.Clone(front.WithServerUser(r.Context()))
	served.RequestURI, served.RemoteAddr = r.URL.RequestURI(), front.LoopbackAddress
	if served.Body == nil {
		served.Body = http.NoBody
	}
	w := NewResponse()
	if err := c.front.Serve(w, served); err != nil {
		return nil, fmt.Errorf("%s %s: the response breaks off: %w", r.Method, r.URL.Path, err)
	}
	return &http.Response{
		StatusCode: w.Code, Status: http.StatusText(w.Code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: io.NopCloser(bytes.NewReader(w.Body.Bytes())), ContentLength: int64(w.Body.Len()), Request: r,
	}, nil
}

// Get returns the body of a response with status 200. For any other the error is a *StatusError.
func (c *Client) Get(ctx context.Context, path string, header http.Header) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.front.LocalURL()+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header = header
	resp, err := c.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = &StatusError{Path: path, Code: resp.StatusCode, Body: body}
	}
	return body, err
}

// StatusError is a response to Get with another status than 200.
type StatusError struct {
	Path string
	Code int
	Body []byte
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("GET %s: status %d: %.200s", e.Path, e.Code, e.Body)
}

// Response is an http.ResponseWriter that keeps a response. The filters wrap no response that cannot be flushed and
// tell when its client has gone.
type Response struct {
	Code int
	Body bytes.Buffer

	header http.Header
}

// NewResponse returns an empty response.
func NewResponse() *Response { return &Response{Code: http.StatusOK, header: http.Header{}} }

// Header implements http.ResponseWriter.
func (w *Response) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *Response) WriteHeader(code int) { w.Code = code }

// Write implements http.ResponseWriter.
func (w *Response) Write(b []byte) (int, error) { return w.Body.Write(b) }

// Flush implements http.Flusher.
func (w *Response) Flush() {}

// CloseNotify implements http.CloseNotifier.
func (w *Response) CloseNotify() <-chan bool { return nil }
