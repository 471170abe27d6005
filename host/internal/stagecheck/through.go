package stagecheck

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/catena-dev/catena/sdk/stagev1/header"
)

const (
	// headerTwo has two values, in requests and responses.
	headerTwo = "X-Check-Two"
	// teapot is a status that no stage has of its own.
	teapot = http.StatusTeapot
)

// throughEndpoints are what serveThrough serves. Elsewhere the downstream stage tells what it has got.
var throughEndpoints = []string{"status", "trailers", "stream", "break", "upgrade"}

var twoValues = []string{"one", "two"}

// countCalls counts the calls for the next stage that come to the host.
func (b *downstream) countCalls(host http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(header.Next) != "" {
			b.calls.Add(1)
		}
		host.ServeHTTP(w, r)
	})
}

// serveThrough is the downstream stage for what the stage that is checked passes on.
func (b *downstream) serveThrough(w http.ResponseWriter, r *http.Request, name string) {
	switch name {
	case "status":
		w.Header()[headerTwo] = twoValues
		w.WriteHeader(teapot)
		_, _ = w.Write(pattern(1000, name))
	case "trailers":
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", headerTrailer)
		_, _ = w.Write(body)
		w.Header().Set(headerTrailer, r.Trailer.Get(headerTrailer))
	case "stream":
		b.streams.Add(1)
		defer b.streams.Add(-1)
		fmt.Fprintln(w, "begin")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case "break":
		fmt.Fprintln(w, "begin")
		_ = http.NewResponseController(w).Flush()
		<-time.After(quiet) // what has not arrived by then breaks off without a beginning
		panic(http.ErrAbortHandler)
	case "upgrade":
		serveUpgrade(w, r)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// serveUpgrade sends back what comes on an upgraded connection.
func serveUpgrade(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "echo" {
		w.WriteHeader(http.StatusUpgradeRequired)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	_, _ = io.Copy(conn, rw)
}

// through returns a path that the stage passes on.
func (s *suite) through(ctx context.Context, name string) (*stage, string, error) {
	if s.opts.Through == "" {
		return nil, "", skip("needs a path that the stage passes on; name it with --through")
	}
	st, err := s.prepared(ctx)
	return st, strings.TrimSuffix(s.opts.Through, "/") + "/" + name, err
}

func checkThrough(ctx context.Context, s *suite) error {
	st, path, err := s.through(ctx, "seen")
	if err != nil {
		return err
	}
	before := st.next.calls.Load()
	a, err := st.do(ctx, http.MethodGet, path, nil, nil)
	what := "a call with X-Catena-Next and the token for GET " + path
	switch {
	case err != nil:
		return want(what, "%v", err)
	case !a.handed:
		return want(what, "a response of the stage's own, %d %.100q", a.status, a.body)
	case st.next.calls.Load() == before:
		return want(what, "a decline; without a call, there is nothing to check")
	}
	return nil
}

func checkThroughRequest(ctx context.Context, s *suite) error {
	st, path, err := s.through(ctx, "seen/a%2Fb?x=1&y=%2F&x=2")
	if err != nil {
		return err
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		a, err := st.do(ctx, method, path, nil, func(r *http.Request) { r.Header[headerTwo] = twoValues })
		got, what := a.downstream, method+" "+path+" at the next stage"
		switch {
		case err != nil:
			return want(what, "%v", err)
		case !a.handed:
			return want(what, "a response of the stage's own, %d %.100q", a.status, a.body)
		case got.Method != method || got.Target != path:
			return want(what, "%s %s", got.Method, got.Target)
		case !slices.Equal(got.two, twoValues):
			return want(fmt.Sprintf("%s with the headers %s: %q", what, headerTwo, twoValues), "%q", got.two)
		case got.host != "stage":
			return want(what+" with Host: stage", "%q", got.host)
		}
	}
	for _, size := range []int{0, 1000, 64<<10 + 1, 1 << 20} {
		body := pattern(size, "through")
		for framing, r := range map[string]io.Reader{"of known length": bytes.NewReader(body), "in chunks": chunked(body)} {
			a, err := st.do(ctx, http.MethodPost, path, r, expectOdd(size))
			what := fmt.Sprintf("POST %s with %d bytes %s at the next stage", path, size, framing)
			if err == nil {
				err = a.downstream.err
			}
			if err != nil || a.downstream.Length != int64(size) || a.downstream.Sum != sha256.Sum256(body) {
				return want(what, "%d bytes, %v", a.downstream.Length, err)
			}
		}
	}
	return nil
}

func checkThroughResponse(ctx context.Context, s *suite) error {
	st, path, err := s.through(ctx, "status")
	if err != nil {
		return err
	}
	a, err := st.do(ctx, http.MethodGet, path, nil, nil)
	what := fmt.Sprintf("the next stage's response to GET %s, %d", path, teapot)
	switch {
	case err != nil:
		return want(what, "%v", err)
	case a.status != teapot:
		return want(what, "%d", a.status)
	case !slices.Equal(a.header[headerTwo], twoValues):
		return want(fmt.Sprintf("%s with the headers %s: %q", what, headerTwo, twoValues), "%q", a.header[headerTwo])
	}
	return sameBody(what, pattern(1000, "status"), a.body)
}

func checkThroughTrailers(ctx context.Context, s *suite) error {
	st, path, err := s.through(ctx, "trailers")
	if err != nil {
		return err
	}
	return st.exchangeTrailers(ctx, path)
}

// checkThroughStream reads the beginning of a response that goes on, and leaves.
func checkThroughStream(ctx context.Context, s *suite) error {
	st, path, err := s.through(ctx, "stream")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.wait.third())
	defer cancel()
	resp, _, err := st.open(ctx, path)
	if err != nil {
		return want("the first line of GET "+path+" while the next stage's response goes on", "%v", err)
	}
	_ = resp.Body.Close()
	for st.next.streams.Load() > 0 {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return want("the end of the call for GET "+path+" whose client has left", "a call that goes on")
		}
	}
	return nil
}

func checkThroughBreak(ctx context.Context, s *suite) error {
	st, path, err := s.through(ctx, "break")
	if err != nil {
		return err
	}
	a, err := st.do(ctx, http.MethodGet, path, nil, nil)
	if err == nil && a.status < http.StatusInternalServerError {
		return want("a response to GET "+path+" that breaks off as the next stage's does", "%d with a proper end, %.100q", a.status, a.body)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return want("the end of the response to GET "+path+" when the next stage's breaks off", "%v", err)
	}
	return nil
}

func checkThroughUpgrade(ctx context.Context, s *suite) error {
	st, path, err := s.through(ctx, "upgrade")
	if err != nil {
		return err
	}
	return st.upgrade(ctx, path)
}
