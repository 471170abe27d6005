package relay

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// recording is what is recorded of one request.
type recording struct {
	*httptest.ResponseRecorder
	metric observed
	log    HopLog
	ended  chan LoggedHop // the spans
	atHead string         // the log when the response began
	first  Hop            // how it ended with the stage a
}

// record sends a request through a host; stages get what is recorded of it.
func record(t *testing.T, stages func(h **host, to *recording) []string) *recording {
	t.Helper()
	var h *host
	to := &recording{ResponseRecorder: httptest.NewRecorder(), ended: make(chan LoggedHop, 10)}
	to.log.Ended = func(hop LoggedHop) { to.ended <- hop }
	h = newHost(t, stages(&h, to)...)
	h.chain.config.Observe = func(hop Hop) {
		if to.metric.observe(hop); hop.Stage == "a" {
			to.first = hop
		}
	}
	w := &headWriter{ResponseRecorder: to.ResponseRecorder, head: func() { to.atHead = way(&to.log) }}
	h.chain.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/x", nil).WithContext(WithHopLog(t.Context(), &to.log)))
	return to
}

// spans are the next n hops to end.
func (to *recording) spans(t *testing.T, n int) []string {
	t.Helper()
	var all []string
	for range n {
		hop := within(t, "a hop to end", to.ended)
		all = append(all, hop.Stage+" "+string(hop.Outcome))
	}
	slices.Sort(all)
	return all
}

// counted are the hops that have been counted, once there are n of them.
func (to *recording) counted(t *testing.T, n int) []string {
	t.Helper()
	var all []string
	eventually(t, fmt.Sprintf("%d hops to be counted", n), func() bool {
		all = strings.Split(to.metric.String(), ", ")
		return len(all) >= n
	})
	slices.Sort(all)
	return all
}

// caller is a stage that asks the next one by a call, and makes its response of that.
func caller(t *testing.T, h **host, stage string, response http.HandlerFunc) string {
	return serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resp, err := (*h).call(r.Context(), "token-"+stage, stagev1.HeaderNext, r.Header.Get(stagev1.HeaderRequest), "/x", nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Error(err)
		}
		response(w, r)
	}))
}

func respondsWith(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
}

func declines(w http.ResponseWriter, _ *http.Request) { decline(w) }

// The metric, the log of hops and the spans agree about each stage: whether it has called,
// also of those that have ended when the response begins, and of those that call in turn.
func TestCalled(t *testing.T) {
	t.Parallel()
	serves, down := func(t *testing.T, text string) string { return serveStage(t, respondsWith(text)) }, "/nowhere"
	for _, tc := range []struct {
		name   string
		hops   []string
		atHead string
		stages func(h **host) []string
	}{
		{"one", []string{"a called", "b declined", "c served"}, "a;outcome=called, b;outcome=declined, c;outcome=served",
			func(h **host) []string {
				return []string{caller(t, h, "a", respondsWith("a")), serveStage(t, http.HandlerFunc(declines)), serves(t, "c")}
			}},
		{"after one that declines", []string{"a declined", "b called", "c served"}, "a;outcome=declined, b;outcome=called, c;outcome=served",
			func(h **host) []string {
				return []string{serveStage(t, http.HandlerFunc(declines)), caller(t, h, "b", respondsWith("b")), serves(t, "c")}
			}},
		{"with none downstream", []string{"a called"}, "a;outcome=called, host;outcome=served",
			func(h **host) []string { return []string{caller(t, h, "a", respondsWith("a"))} }},
		{"with one downstream that declines", []string{"a called", "b declined"}, "a;outcome=called, b;outcome=declined, host;outcome=served",
			func(h **host) []string {
				return []string{caller(t, h, "a", respondsWith("a")), serveStage(t, http.HandlerFunc(declines))}
			}},
		{"with one downstream that cannot be reached", []string{"a called", "b unavailable"}, "a;outcome=called, b;outcome=unavailable, host;outcome=served",
			func(h **host) []string { return []string{caller(t, h, "a", respondsWith("a")), down} }},
		{"and declines", []string{"a declined", "b served", "b served"}, "a;outcome=declined, b;outcome=served, b;outcome=served",
			func(h **host) []string { return []string{caller(t, h, "a", declines), serves(t, "b")} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			to := record(t, func(h **host, _ *recording) []string { return tc.stages(h) })
			replayed := func(hop string) bool { return strings.HasSuffix(hop, " replayed") }
			if got := slices.DeleteFunc(to.counted(t, len(tc.hops)), replayed); !slices.Equal(got, tc.hops) || to.Code != http.StatusOK {
				t.Errorf("%d; counted are %q, want %q", to.Code, got, tc.hops)
			}
			if got := to.spans(t, len(tc.hops)); !slices.Equal(got, tc.hops) {
				t.Errorf("the spans are %q, want %q", got, tc.hops)
			}
			if to.atHead != tc.atHead {
				t.Errorf("the log is %q, want %q", to.atHead, tc.atHead)
			}
		})
	}
}

// A caller whose part is over when the response begins is no stage that has responded itself.
func TestCalledInACall(t *testing.T) {
	t.Parallel()
	to := record(t, func(h **host, to *recording) []string {
		outer := func(w http.ResponseWriter, _ *http.Request) {
			if got, want := to.spans(t, 2), []string{"b called", "c served"}; !slices.Equal(got, want) {
				t.Errorf("%q have ended, want %q", got, want)
			}
			fmt.Fprint(w, "a")
		}
		return []string{caller(t, h, "a", outer), caller(t, h, "b", respondsWith("b")), serveStage(t, respondsWith("c"))}
	})
	if want := "a;outcome=called, b;outcome=called, c;outcome=served"; to.atHead != want {
		t.Errorf("the log is %q, want %q", to.atHead, want)
	}
	if got, want := to.counted(t, 3), []string{"a called", "b called", "c served"}; !slices.Equal(got, want) {
		t.Errorf("counted are %q, want %q", got, want)
	}
	if got := to.spans(t, 1); got[0] != "a called" {
		t.Errorf("%q has ended at last, want a called", got)
	}
}

// A caller that does not wait for the end of its call responds by itself, and not the host.
func TestCalledAndGivenUp(t *testing.T) {
	t.Parallel()
	to := record(t, func(h **host, to *recording) []string {
		inB := make(chan struct{})
		a := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, giveUp := context.WithCancel(r.Context())
			defer giveUp()
			go func() { <-inB; giveUp() }()
			resp, err := (*h).call(ctx, "token-a", stagev1.HeaderNext, r.Header.Get(stagev1.HeaderRequest), "/x", nil)
			if err == nil {
				resp.Body.Close()
				t.Errorf("the call got a response: %s", resp.Status)
			}
			if got := to.spans(t, 1); got[0] != "b canceled" {
				t.Errorf("%q has ended, want b canceled", got)
			}
			fmt.Fprint(w, "a")
		}))
		return []string{a, serveStage(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(inB)
			<-r.Context().Done()
		}))}
	})
	if want := "a;outcome=called, b;outcome=canceled"; to.atHead != want || to.Code != http.StatusOK {
		t.Errorf("%d, the log is %q, want %q", to.Code, to.atHead, want)
	}
}

// A caller whose client goes away in the middle of the response has called all the same:
// so end most watches.
func TestCalledWithoutEnd(t *testing.T) {
	t.Parallel()
	var h *host
	var metric observed
	flush := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "part")
		_ = http.NewResponseController(w).Flush()
	}
	a := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resp, err := h.call(r.Context(), "token-a", stagev1.HeaderNext, r.Header.Get(stagev1.HeaderRequest), "/x", nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		flush(w, r)
		_, _ = io.Copy(io.Discard, resp.Body)
	}))
	h = newHost(t, a, serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		flush(w, r)
		<-r.Context().Done()
	})))
	h.chain.config.Observe = metric.observe
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, h.URL, nil)
	resp, err := h.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	leave()
	eventually(t, "both hops to end", func() bool { return strings.Count(metric.String(), ",") == 1 })
	if got := metric.String(); got != "a called, b canceled" && got != "b canceled, a called" {
		t.Errorf("counted are %q", got)
	}
}

// A caller fails by its response as every other stage does: probation goes by that.
func TestCalledAndFailed(t *testing.T) {
	t.Parallel()
	for status, failed := range map[int]bool{http.StatusNotFound: false, http.StatusInternalServerError: true} {
		to := record(t, func(h **host, _ *recording) []string {
			return []string{caller(t, h, "a", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })}
		})
		if hop := to.first; hop.Outcome != Called || hop.Status != to.Code || hop.Failed() != failed {
			t.Errorf("%d: %+v, failed: %v", to.Code, hop, hop.Failed())
		}
	}
}

// The response to a call tells the stage whether its connection takes another one. It does not if the body of a request
// whose client need not end it has not come to its end: what comes of it would be taken for the next request.
func TestConnectionOfCalls(t *testing.T) {
	t.Parallel()
	type answer struct {
		status int
		closes bool
	}
	echoes := func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }
	forbids := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }
	breaksOff := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for name, tc := range map[string]struct {
		token, length string
		next          http.HandlerFunc
		ends          bool
		want          answer
	}{
		"body that is read":     {"token-a", "", echoes, true, answer{200, false}},
		"body of known length":  {"token-a", "4", echoes, true, answer{200, false}},
		"body that goes on":     {"token-a", "", forbids, false, answer{403, true}},
		"body that is not read": {"token-a", "", breaksOff, false, answer{502, true}},
		"call that is refused":  {"token-b", "", declines, false, answer{409, true}},
	} {
		answers := make(chan answer, 1)
		var h *host
		a := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).EnableFullDuplex()
			dial := func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", h.socket) }
			transport := &http.Transport{DialContext: dial}
			defer transport.CloseIdleConnections()
			req, _ := http.NewRequestWithContext(r.Context(), r.Method, "http://host/x", r.Body)
			req.ContentLength = r.ContentLength
			req.Header.Set("Authorization", "Bearer "+tc.token)
			req.Header.Set(stagev1.HeaderNext, r.Header.Get(stagev1.HeaderRequest))
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			defer resp.Body.Close()
			_, _ = io.Copy(io.Discard, resp.Body)
			answers <- answer{resp.StatusCode, resp.Close}
		}))
		h = newHost(t, a, serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).EnableFullDuplex()
			tc.next(w, r)
		})))
		front, body := serveHTTP2(t, h.chain), io.NopCloser(io.Reader(strings.NewReader("body")))
		if !tc.ends {
			out, in := io.Pipe()
			t.Cleanup(func() { _ = in.Close() })
			go func() { _, _ = io.WriteString(in, "body") }()
			body = out
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, front.URL+"/x", body)
		if tc.length != "" {
			req.ContentLength = 4
		}
		resp, err := front.Client().Do(req)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_ = resp.Body.Close()
		if got := within(t, name, answers); got != tc.want {
			t.Errorf("%s: the call has %+v, want %+v", name, got, tc.want)
		}
	}
}
