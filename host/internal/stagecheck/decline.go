package stagecheck

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// checkDecline sends bodies of all kinds to a path that the stage hands on.
func checkDecline(ctx context.Context, s *suite) error {
	st, path, err := s.declined(ctx)
	if err != nil {
		return err
	}
	for _, size := range []int{0, 1, 1000, 64 << 10, 64<<10 + 1, 4 << 20} {
		body := pattern(size, "decline")
		for framing, r := range map[string]io.Reader{"of known length": bytes.NewReader(body), "in chunks": chunked(body)} {
			what := fmt.Sprintf("POST %s with %d bytes %s at the next stage, unchanged", path, size, framing)
			a, err := st.do(ctx, http.MethodPost, path, r, expectOdd(size))
			switch {
			case err != nil:
				return want(what, "%v", err)
			case !a.handed:
				return want(what, "a response of the stage's own, %d", a.status)
			case a.downstream.err != nil || a.downstream.Length != int64(size) || a.downstream.Sum != sha256.Sum256(body):
				return want(what, "%d bytes, %v", a.downstream.Length, a.downstream.err)
			case a.downstream.Target != path || a.downstream.Method != http.MethodPost:
				return want(what, "%s %s", a.downstream.Method, a.downstream.Target)
			}
		}
	}
	return nil
}

// expectOdd makes the client wait with every other body until it is asked for.
func expectOdd(size int) func(*http.Request) {
	return func(r *http.Request) {
		if size%2 == 1 {
			r.Header.Set("Expect", "100-continue")
		}
	}
}

// declined returns a path of the stage's whose requests reach the next stage.
func (s *suite) declined(ctx context.Context) (*stage, string, error) {
	if s.opts.Endpoints != "" {
		st, path, err := s.endpointPath(ctx, "decline")
		if _, skipped := err.(skip); err == nil || !skipped {
			return st, path, err
		}
	}
	st, _, err := s.path(ctx)
	if err != nil {
		return nil, "", err
	}
	paths := s.probePaths(st)
	for _, path := range paths {
		probe, cancel := context.WithTimeout(ctx, s.wait.probe())
		a, err := st.do(probe, http.MethodPost, path, strings.NewReader("{}"), nil)
		cancel()
		if err == nil && a.handed {
			return st, path, nil
		}
	}
	return nil, "", skipf("the stage serves %s itself; name a path that it hands on with --path", strings.Join(paths, ", "))
}
