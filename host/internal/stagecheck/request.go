package stagecheck

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// maxResponse bounds what is read of a response whose end does not matter.
const maxResponse = 1 << 20

// response is the response to a request.
type response struct {
	status     int
	header     http.Header
	body       []byte
	trailer    http.Header
	handed     bool // the downstream stage has seen the request
	downstream seen
}

// do makes a request through the relay and reads the whole response.
func (st *stage) do(ctx context.Context, method, path string, body io.Reader, change func(*http.Request)) (response, error) {
	resp, id, err := st.begin(ctx, method, path, body, change)
	if err != nil {
		return response{}, err
	}
	defer resp.Body.Close()
	a := response{status: resp.StatusCode, header: resp.Header}
	a.body, err = io.ReadAll(resp.Body)
	if err != nil {
		return a, fmt.Errorf("%s %s: the response breaks off after %d bytes: %w", method, path, len(a.body), err)
	}
	a.trailer = resp.Trailer
	a.downstream, a.handed = st.next.take(id)
	return a, nil
}

// begin makes a request and returns when the head of the response has come.
func (st *stage) begin(ctx context.Context, method, path string, body io.Reader, change func(*http.Request)) (*http.Response, string, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://stage"+path, body)
	if err != nil {
		return nil, "", err
	}
	id := rand.Text()
	r.Header.Set(headerID, id)
	if change != nil {
		change(r)
	}
	resp, err := st.client.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return nil, "", fmt.Errorf("%s %s: no response: %w", method, path, ctx.Err())
		}
		return nil, "", fmt.Errorf("%s %s: %w", method, path, err)
	}
	if problem := resp.Header.Get(headerError); problem != "" {
		_ = resp.Body.Close()
		return nil, "", fmt.Errorf("%s %s: %s", method, path, problem)
	}
	return resp, id, nil
}

// probePaths are the paths to which ordinary requests are sent.
func (s *suite) probePaths(st *stage) []string {
	paths := s.opts.Paths
	if len(paths) > 0 {
		return paths
	}
	const most = 6
	for _, c := range st.prepared.GetClaims() {
		if len(paths) >= most {
			break
		}
		below := strings.TrimSuffix(c.GetPath(), "/") + "/stagecheck"
		switch c.GetMatch() {
		case stagev1.Claim_EXACT:
			paths = append(paths, c.GetPath())
		case stagev1.Claim_PREFIX:
			paths = append(paths, c.GetPath(), below)
		case stagev1.Claim_CHILD:
			paths = append(paths, below)
		}
	}
	return paths
}

// path returns a path on which the stage serves ordinary requests.
func (s *suite) path(ctx context.Context) (*stage, string, error) {
	st, err := s.prepared(ctx)
	if err != nil {
		return nil, "", err
	}
	if st.path != "" {
		return st, st.path, nil
	}
	paths := s.probePaths(st)
	if len(paths) == 0 {
		return nil, "", skip("the stage claims no path")
	}
	var errs []error
	for _, path := range paths {
		probe, cancel := context.WithTimeout(ctx, s.wait.probe())
		a, err := st.do(probe, http.MethodGet, path, nil, nil)
		cancel()
		if err == nil {
			st.path, st.status = path, a.status
			return st, path, nil
		}
		errs = append(errs, err)
	}
	return nil, "", want("a response to an ordinary request on one of "+strings.Join(paths, ", "), "%v", errors.Join(errs...))
}

// again requests the path again that was served before. Any response will do, such as "too many
// requests", but there must be one.
func (st *stage) again(ctx context.Context, when string) error {
	if st.path == "" {
		return nil
	}
	a, err := st.do(ctx, http.MethodGet, st.path, nil, nil)
	if err == nil && a.status != st.status && a.status >= http.StatusInternalServerError {
		err = fmt.Errorf("status %d", a.status)
	}
	if err != nil {
		return want(fmt.Sprintf("a response to GET %s, such as the %d of before, %s", st.path, st.status, when), "%v", err)
	}
	return nil
}

// endpointPath returns the path of a check endpoint, if the stage serves it.
func (s *suite) endpointPath(ctx context.Context, name string) (*stage, string, error) {
	st, err := s.prepared(ctx)
	if err != nil {
		return nil, "", err
	}
	if s.opts.Endpoints == "" {
		return nil, "", skip("needs a check endpoint; name where the stage serves them with --endpoints")
	}
	path := strings.TrimSuffix(s.opts.Endpoints, "/") + "/" + name
	probe, cancel := context.WithTimeout(ctx, s.wait.probe())
	defer cancel()
	var change func(*http.Request)
	if name == "upgrade" {
		change = upgradeToEcho
	}
	resp, id, err := st.begin(probe, http.MethodGet, path, nil, change)
	if err != nil {
		return nil, "", want(fmt.Sprintf("the head of a response to GET %s within %s", path, s.wait.probe()), "%v", err)
	}
	defer resp.Body.Close()
	// A stream that does not end has not been handed on either.
	_, handed := st.next.take(id)
	if resp.StatusCode == http.StatusNotFound || handed && name != "decline" {
		return nil, "", skipf("the stage does not serve %s", path)
	}
	return st, path, nil
}

// pattern is a body of n bytes in which each part differs from the others.
func pattern(n int, seed string) []byte {
	out := make([]byte, 0, n+sha256.Size)
	for sum := sha256.Sum256([]byte(seed)); len(out) < n; sum = sha256.Sum256(sum[:]) {
		out = append(out, sum[:]...)
	}
	return out[:n]
}

// sized hides from net/http how long a body is.
type unsized struct{ io.Reader }

func chunked(body []byte) io.Reader { return unsized{bytes.NewReader(body)} }

// sameBody compares what has come with what was sent.
func sameBody(where string, sent, got []byte) error {
	if bytes.Equal(sent, got) {
		return nil
	}
	at := 0
	for at < len(sent) && at < len(got) && sent[at] == got[at] {
		at++
	}
	return want(fmt.Sprintf("%s: the %d bytes that were sent", where, len(sent)), "%d bytes, which differ from byte %d on", len(got), at)
}
