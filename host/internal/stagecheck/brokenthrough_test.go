//go:build linux

package stagecheck

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// through passes a request on, with the fault of the mode.
func (b *broken) through(w http.ResponseWriter, r *http.Request) {
	switch b.mode {
	case "through-decline":
		b.env.Next.ServeHTTP(w, r)
		return
	case "through-none":
		b.callByHand(w, r, b.env.Host().Token, "")
		return
	case "through-token":
		b.callByHand(w, r, "wrong", r.Header.Get(stagev1.HeaderRequest))
		return
	case "through-drain":
		b.callByHand(w, r, b.env.Host().Token, r.Header.Get(stagev1.HeaderRequest))
		return
	case "through-query":
		r.URL.RawQuery = ""
	case "through-path":
		r.URL.RawPath = ""
	case "through-headers":
		r.Header.Del(headerTwo)
	case "through-twice":
		r.Header[headerTwo] = append(r.Header[headerTwo], r.Header[headerTwo]...)
	case "through-host":
		r.Host = "elsewhere"
	case "through-body":
		r.Body = http.NoBody
	case "through-trailers":
		r.Trailer = nil
	case "through-upgrade":
		r.Header.Del("Upgrade")
	case "through-buffers", "through-break":
		b.buffered(w, r)
		return
	}
	b.env.Call.ServeHTTP(&changed{ResponseWriter: w, mode: b.mode}, r)
}

// changed is a response with a fault.
type changed struct {
	http.ResponseWriter
	mode string
}

func (c *changed) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *changed) WriteHeader(status int) {
	switch c.mode {
	case "through-drops":
		c.Header().Del(headerTwo)
	case "through-repeats":
		c.Header()[headerTwo] = append(c.Header()[headerTwo], c.Header()[headerTwo]...)
	case "through-status":
		status = http.StatusOK
	}
	c.ResponseWriter.WriteHeader(status)
}

// buffered responds when it has the whole response; in the mode through-break, also if it has broken off.
func (b *broken) buffered(w http.ResponseWriter, r *http.Request) {
	whole := httptest.NewRecorder()
	func() {
		defer func() {
			if p := recover(); p != nil && b.mode != "through-break" {
				panic(p)
			}
		}()
		b.env.Call.ServeHTTP(whole, r)
	}()
	maps.Copy(w.Header(), whole.Header())
	w.WriteHeader(whole.Code)
	_, _ = io.Copy(w, whole.Body)
}

// callByHand calls without the SDK, and ends nothing when the stage drains.
func (b *broken) callByHand(w http.ResponseWriter, r *http.Request, token, next string) {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", b.env.Host().Socket)
	}}
	defer transport.CloseIdleConnections()
	body, _ := io.ReadAll(r.Body)
	out, err := http.NewRequestWithContext(r.Context(), r.Method, "http://host"+r.RequestURI, bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	out.Header = r.Header.Clone()
	maps.DeleteFunc(out.Header, func(key string, _ []string) bool {
		return slices.Contains([]string{"Connection", "Expect"}, key) || key == stagev1.HeaderRequest
	})
	out.Header.Set("Authorization", "Bearer "+token)
	if next != "" {
		out.Header.Set(stagev1.HeaderNext, next)
	}
	resp, err := transport.RoundTrip(out)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	for chunk := make([]byte, 1000); err == nil; {
		var n int
		n, err = resp.Body.Read(chunk)
		_, _ = w.Write(chunk[:n])
		_ = http.NewResponseController(w).Flush()
	}
	if err != io.EOF {
		panic(http.ErrAbortHandler)
	}
}
