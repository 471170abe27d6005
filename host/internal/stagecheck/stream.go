package stagecheck

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

func checkEcho(ctx context.Context, s *suite) error {
	st, path, err := s.endpointPath(ctx, "echo")
	if err != nil {
		return err
	}
	for _, size := range []int{0, 1, 1000, 64 << 10, 64<<10 + 1, 4 << 20} {
		body := pattern(size, "echo")
		for framing, r := range map[string]io.Reader{"of known length": bytes.NewReader(body), "in chunks": chunked(body)} {
			what := fmt.Sprintf("response to POST %s %s", path, framing)
			a, err := st.do(ctx, http.MethodPost, path, r, expectOdd(size))
			if err != nil {
				return want(what+fmt.Sprintf(" with the %d bytes that were sent", size), "%v", err)
			}
			if err := sameBody(what, body, a.body); err != nil {
				return err
			}
		}
	}
	return nil
}

// open begins the stream of the endpoint and reads its first line.
func (st *stage) open(ctx context.Context, path string) (*http.Response, *bufio.Reader, error) {
	resp, _, err := st.begin(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return nil, nil, err
	}
	r := bufio.NewReader(resp.Body)
	if line, err := r.ReadString('\n'); err != nil {
		_ = resp.Body.Close()
		return nil, nil, fmt.Errorf("the stream ends after %q: %w", line, err)
	}
	return resp, r, nil
}

func checkStreaming(ctx context.Context, s *suite) error {
	st, path, err := s.endpointPath(ctx, "stream")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.wait.third())
	defer cancel()
	resp, _, err := st.open(ctx, path)
	if err != nil {
		return want("the first line of GET "+path+" while the response goes on", "%v", err)
	}
	defer resp.Body.Close()
	if resp.ContentLength >= 0 {
		return want("a response of unknown length, in chunks", "Content-Length: %d", resp.ContentLength)
	}
	return nil
}

func checkTrailers(ctx context.Context, s *suite) error {
	st, path, err := s.endpointPath(ctx, "trailers")
	if err != nil {
		return err
	}
	return st.exchangeTrailers(ctx, path)
}

const headerTrailer = "X-Check-Trailer"

// exchangeTrailers sends a trailer to where its value is a trailer of the response.
func (st *stage) exchangeTrailers(ctx context.Context, path string) error {
	const value = "after the body"
	body := pattern(1000, "trailers")
	a, err := st.do(ctx, http.MethodPost, path, chunked(body), func(r *http.Request) {
		r.Trailer = http.Header{headerTrailer: {value}}
		r.Header.Set("Te", "trailers")
	})
	if err != nil {
		return err
	}
	if got := a.trailer.Get(headerTrailer); got != value {
		what := fmt.Sprintf("the trailer %s: %s of the request in the response of POST %s", headerTrailer, value, path)
		return want(what, "%q", got)
	}
	return sameBody("response to POST "+path, body, a.body)
}

func upgradeToEcho(r *http.Request) {
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "echo")
}

func checkUpgrade(ctx context.Context, s *suite) error {
	st, path, err := s.endpointPath(ctx, "upgrade")
	if err != nil {
		return err
	}
	return st.upgrade(ctx, path)
}

// upgrade has a connection upgraded to one that sends back what comes.
func (st *stage) upgrade(ctx context.Context, path string) error {
	resp, _, err := st.begin(ctx, http.MethodGet, path, nil, upgradeToEcho)
	if err != nil {
		return want("101 for GET "+path+" with Upgrade: echo", "%v", err)
	}
	defer resp.Body.Close()
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if resp.StatusCode != http.StatusSwitchingProtocols || !ok {
		return want("101 for GET "+path+" with Upgrade: echo", "status %d", resp.StatusCode)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	const request = "GET / HTTP/1.1\r\nHost: stage\r\nX-Catena-User: {\"name\":\"forged\"}\r\n\r\n" // which it is no more
	sent := append([]byte(request), pattern(256<<10, "upgrade")...)
	go func() { _, _ = conn.Write(sent) }()
	got := make([]byte, len(sent))
	if n, err := io.ReadFull(conn, got); err != nil {
		return want(fmt.Sprintf("%d bytes back over the upgraded connection", len(sent)), "%d bytes, %v", n, err)
	}
	return sameBody("bytes back over the upgraded connection", sent, got)
}

// checkSlowReader takes the beginning of a long response, and the rest after another
// request has got its response.
func checkSlowReader(ctx context.Context, s *suite) error {
	st, path, err := s.endpointPath(ctx, "echo")
	if err != nil {
		return err
	}
	body := pattern(largeBody, "slow")
	resp, _, err := st.begin(ctx, http.MethodPost, path, bytes.NewReader(body), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	digest := sha256.New()
	if _, err := io.CopyN(digest, resp.Body, 1000); err != nil {
		return want("the beginning of the response to POST "+path, "%v", err)
	}
	if a, err := st.do(ctx, http.MethodPost, path, strings.NewReader("in between"), nil); err != nil || string(a.body) != "in between" {
		return want("a response to another request while a client reads slowly", "%q, %v", a.body, err)
	}
	n, err := io.Copy(digest, resp.Body)
	if sum := sha256.Sum256(body); err != nil || string(digest.Sum(nil)) != string(sum[:]) {
		return want(fmt.Sprintf("all %d bytes of the response, unchanged", len(body)), "%d bytes, %v", n+1000, err)
	}
	return nil
}

const (
	unfinished = 32  // requests that are held open
	parallel   = 32  // requests at a time
	total      = 640 // in all
)

// checkConcurrency holds requests open, and makes others at the same time.
func checkConcurrency(ctx context.Context, s *suite) error {
	st, path, err := s.path(ctx)
	if err != nil {
		return err
	}
	for range unfinished {
		conn, err := st.half(ctx, path)
		if err != nil {
			return err
		}
		defer conn.Close()
	}
	_, stream, err := s.endpointPath(ctx, "stream")
	for range unfinished {
		if err != nil {
			break
		}
		resp, _, err := st.open(ctx, stream)
		if err != nil {
			return want(fmt.Sprintf("%d streams at the same time", unfinished), "%v", err)
		}
		defer resp.Body.Close()
	}
	when := fmt.Sprintf("each of %d times, %d at a time, while others are unfinished", total, parallel)
	return st.requests(ctx, total, parallel, func(ctx context.Context) error { return st.again(ctx, when) })
}

// half begins a request whose body the stage has to ask for, and does not send it.
func (st *stage) half(ctx context.Context, path string) (*rawConn, error) {
	conn, err := st.dial(ctx)
	if err != nil {
		return nil, err
	}
	return conn, conn.head(http.MethodPost, path, "Content-Length: 1000000", "Expect: 100-continue")
}

// requests calls one n times, workers at a time, until the first error.
func (st *stage) requests(ctx context.Context, n, workers int, one func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for range workers {
		wg.Go(func() {
			for range n / workers {
				if ctx.Err() != nil {
					return
				}
				err := one(ctx)
				mu.Lock()
				if err != nil && failed == nil {
					failed = err
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return failed
}
