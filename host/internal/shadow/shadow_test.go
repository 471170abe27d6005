package shadow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// process responds to the n-th request that it gets.
type process func(n int, q Request) (Response, error)

func always(body string) process {
	return func(int, Request) (Response, error) { return respond(body), nil }
}

// start begins to compare two processes. The result has what became of each request.
func start(t *testing.T, o Options, old, next process) (*Shadow, <-chan string) {
	t.Helper()
	var mu sync.Mutex
	n := [2]int{}
	results := make(chan string, 1000)
	o.Ask = func(_ context.Context, to Side, q Request) (Response, error) {
		mu.Lock()
		defer mu.Unlock()
		n[to]++
		return [2]process{old, next}[to](n[to], q)
	}
	o.Stage, o.Binary, o.From, o.To, o.Sample, o.Budget = "core", "/bin/x", "v1", "v2", 1, 1
	if o.For == 0 {
		o.For = time.Hour
	}
	if o.Secret == nil {
		o.Secret = func(r Resource) bool { return r.Name == "secrets" }
	}
	o.MayDryRun = func(_ context.Context, q Request) string {
		if q.Resource.Name == "hooked" {
			return "a webhook"
		}
		return ""
	}
	o.Observe = func(result string) { results <- result }
	s := Start(o)
	t.Cleanup(func() {
		s.End(ErrStopped)
		<-s.Done()
	})
	return s, results
}

func get(name, path string) Request {
	return Request{
		Method: http.MethodGet, URL: url.URL{Path: path}, Header: http.Header{}, As: func(ctx context.Context) context.Context { return ctx },
		Resource: Resource{Verb: "get", Version: "v1", Name: name},
	}
}

func await(t *testing.T, results <-chan string) string {
	t.Helper()
	select {
	case r := <-results:
		return r
	case <-time.After(time.Minute):
		t.Fatal("a request was not compared within a minute")
		return ""
	}
}

func TestResults(t *testing.T) {
	t.Parallel()
	count := func(format string) process {
		return func(n int, _ Request) (Response, error) { return respond(fmt.Sprintf(format, n)), nil }
	}
	status := func(codes ...int) process {
		return func(n int, _ Request) (Response, error) {
			return Response{Status: codes[min(n, len(codes))-1], Header: http.Header{}}, nil
		}
	}
	fail := func(err error) process { return func(int, Request) (Response, error) { return Response{}, err } }
	a := `{"metadata":{"resourceVersion":"7"},"spec":{"a":1}}`
	for name, c := range map[string]struct {
		old, new process
		want     string
		fields   string
	}{
		"equal":              {always(a), always(a), Equal, ""},
		"different":          {always(a), always(strings.Replace(a, ":1", ":2", 1)), Different, "spec.a"},
		"time":               {count(`{"metadata":{"resourceVersion":"7"},"now":%d}`), count(`{"metadata":{"resourceVersion":"7"},"now":-%d}`), Equal, ""},
		"time and more":      {count(`{"metadata":{"resourceVersion":"7"},"now":%d}`), count(`{"metadata":{"resourceVersion":"7"},"now":-%d,"x":1}`), Different, "x"},
		"changes":            {count(`{"metadata":{"resourceVersion":"%d"}}`), count(`{"metadata":{"resourceVersion":"-%d"}}`), Moved, ""},
		"status":             {status(200), status(404), Different, statusCode},
		"deleted in between": {status(200, 404), status(404), Equal, ""},
		"created once":       {status(404), status(200, 404), Equal, ""},
		"comes and goes":     {status(404, 200, 200, 404, 404, 200, 200, 404, 404, 200), status(500), Moved, ""},
		"old is silent":      {fail(errors.New("down")), always(a), NoResponse, ""},
		"new is silent":      {always(a), fail(errors.New("hangs")), Different, statusCode},
		"too large":          {fail(ErrTooLarge), always(a), TooLarge, ""},
		"new is too large":   {always(a), fail(ErrTooLarge), TooLarge, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, results := start(t, Options{}, c.old, c.new)
			s.Offer(get("pods", "/api/v1/namespaces/a/pods/b"))
			if got := await(t, results); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			r := s.Report()
			fields := ""
			for _, g := range r.Groups {
				fields += g.Path
			}
			if fields != c.fields || r.Results[c.want] != 1 {
				t.Errorf("fields %q, want %q; %v", fields, c.fields, r.Results)
			}
		})
	}
}

// Lists are read as of one version of the store by both.
func TestListsArePinned(t *testing.T) {
	t.Parallel()
	pinned := func(n int, q Request) (Response, error) {
		if v := q.URL.Query().Get("resourceVersion"); v != "" {
			return respond(`{"metadata":{"resourceVersion":"` + v + `"},"items":[]}`), nil
		}
		return respond(fmt.Sprintf(`{"metadata":{"resourceVersion":"%d"},"items":[%d]}`, n, n)), nil
	}
	s, results := start(t, Options{}, pinned, func(n int, q Request) (Response, error) {
		if q.URL.Query().Get("resourceVersionMatch") != "Exact" {
			t.Errorf("the new process was asked for %s", q.URL.String())
		}
		return pinned(n, q)
	})
	q := get("pods", "/api/v1/pods")
	q.Resource.Verb = "list"
	s.Offer(q)
	if got := await(t, results); got != Equal {
		t.Error(got)
	}
	// A server that does not know of exact versions is asked as the client has.
	unversioned := func(_ int, q Request) (Response, error) {
		if q.URL.Query().Has("resourceVersionMatch") {
			return Response{Status: http.StatusBadRequest}, nil
		}
		return respond(`{"metadata":{"resourceVersion":"7"}}`), nil
	}
	s, results = start(t, Options{}, unversioned, unversioned)
	s.Offer(q)
	if got := await(t, results); got != Equal {
		t.Error(got)
	}
}

// A write goes out as a dry run, and not at all if a webhook is in the way.
func TestWrites(t *testing.T) {
	t.Parallel()
	check := func(_ int, q Request) (Response, error) {
		if q.URL.RawQuery != "dryRun=All" || string(q.Body) != `{"metadata":{"name":"b-shadow"}}` {
			t.Errorf("%s %s", q.URL.String(), q.Body)
		}
		return respond(`{}`), nil
	}
	s, results := start(t, Options{Writes: true}, check, check)
	q := get("pods", "/api/v1/namespaces/a/pods")
	q.Method, q.Resource.Verb, q.Body = http.MethodPost, "create", []byte(`{"metadata":{"name":"b"}}`)
	q.Header.Set("Content-Type", "application/json")
	s.Offer(q)
	if got := await(t, results); got != Equal {
		t.Error(got)
	}
	q.Resource.Name = "hooked"
	s.Offer(q)
	if got := await(t, results); got != NotSent || s.Report().Reasons["a webhook"] != 1 {
		t.Errorf("%s, %v", got, s.Report())
	}
}

// A field that differs in between responses of the old process is no difference, even if it was taken for one before.
func TestNoiseIsLearnt(t *testing.T) {
	t.Parallel()
	old := func(n int, _ Request) (Response, error) {
		at := 1
		if n > 2 { // the first comparison sees one and the same value twice
			at = n
		}
		return respond(fmt.Sprintf(`{"metadata":{"resourceVersion":"7"},"at":%d,"kept":1}`, at)), nil
	}
	s, results := start(t, Options{}, old, always(`{"metadata":{"resourceVersion":"7"},"at":0,"kept":2}`))
	for range 2 {
		s.Offer(get("pods", "/api/v1/namespaces/a/pods/b"))
		if got := await(t, results); got != Different {
			t.Error(got)
		}
	}
	r := s.Report()
	if len(r.Groups) != 1 || r.Groups[0].Path != "kept" || r.Groups[0].Count != 2 || len(r.Noise) != 1 || r.Noise[0] != "pods.v1: at" {
		t.Errorf("%+v", r)
	}
}

func TestSecretsAreMasked(t *testing.T) {
	t.Parallel()
	s, results := start(t, Options{}, always(`{"metadata":{"resourceVersion":"7"},"data":{"a":"c2VjcmV0"},"type":"s3cr3t"}`), always(`{"metadata":{"resourceVersion":"7"},"data":{},"x":"s3cr3t"}`))
	s.Offer(get("secrets", "/api/v1/namespaces/a/secrets/b"))
	await(t, results)
	r := s.Report()
	var text, page bytes.Buffer
	if err := errors.Join(r.WriteText(&text), r.WriteHTML(&page)); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{text.String(), page.String(), fmt.Sprint(r)} {
		if strings.Contains(out, "c2VjcmV0") || strings.Contains(out, "s3cr3t") || !strings.Contains(out, masked) || !strings.Contains(out, "data[]") {
			t.Error(out)
		}
	}
}

// What does not fit into the queue is dropped at once.
func TestOfferDoesNotWait(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	s, results := start(t, Options{}, func(int, Request) (Response, error) {
		<-hold
		return respond(`{}`), nil
	}, always(`{}`))
	for range maxQueue + 2 {
		s.Offer(get("pods", "/api/v1/namespaces/a/pods/b"))
	}
	if got := await(t, results); got != Dropped {
		t.Error(got)
	}
	close(hold)
	if n := s.Report().Results[Dropped]; n < 1 || n > 2 {
		t.Errorf("%d were dropped", n)
	}
}

func TestEnds(t *testing.T) {
	t.Parallel()
	s, _ := start(t, Options{For: time.Millisecond}, always(`{}`), always(`{}`))
	<-s.Done()
	s.End(ErrStopped)
	if r := s.Report(); r.Why != ErrOver.Error() || r.Ended.IsZero() || s.Summary() != nil {
		t.Errorf("%+v", r)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	s, results := start(t, Options{}, always(`{"metadata":{"resourceVersion":"7"},"spec":{"a":"<b>"}}`), always(`{"metadata":{"resourceVersion":"7"},"spec":{}}`))
	for range 3 {
		s.Offer(get("pods", "/api/v1/namespaces/a/pods/b"))
		await(t, results)
	}
	r := s.Report()
	var text, page bytes.Buffer
	if err := errors.Join(r.WriteText(&text), r.WriteHTML(&page)); err != nil {
		t.Fatal(err)
	}
	if want := "pods.v1: spec.a: missing, 3 times\n    GET /api/v1/namespaces/a/pods/b\n    - \"<b>\"\n"; !strings.Contains(text.String(), want) || strings.Contains(text.String(), "no differences") {
		t.Error(text.String())
	}
	if strings.Contains(page.String(), "<b>") || !strings.Contains(page.String(), "<code>spec.a</code>") {
		t.Error(page.String())
	}
}

// What has no version may change in between: it is noise only if that is seen several times, and an error never is.
func TestNoiseOfWhatHasNoVersion(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusOK, http.StatusNotFound} {
		count := func(format string) process {
			return func(n int, _ Request) (Response, error) {
				r := respond(fmt.Sprintf(format, n))
				r.Status = status
				return r, nil
			}
		}
		s, results := start(t, Options{}, count(`{"at":%d}`), count(`{"at":-%d}`))
		for i := range enoughNoise + 1 {
			if n := len(s.Report().Noise); (n > 0) != (i >= enoughNoise && status == http.StatusOK) {
				t.Errorf("%d: %d fields are noise after %d times", status, n, i)
			}
			s.Offer(get("pods", "/api/v1/namespaces/a/pods/b"))
			if got := await(t, results); got != Equal {
				t.Error(got)
			}
		}
	}
}
