package dashboard

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/canary"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/host/internal/traffic"
)

const patience = 30 * time.Second

// fakeHost has a status that tests change.
type fakeHost struct {
	mu      sync.Mutex
	status  admin.Status
	changed chan struct{}
	asked   int
}

func newFakeHost(stages ...supervisor.Status) *fakeHost {
	return &fakeHost{status: admin.Status{Host: admin.HostStatus{Ready: true}, Stages: stages}, changed: make(chan struct{})}
}

func (h *fakeHost) Status(context.Context) (admin.Status, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked++
	return h.status, nil
}

func (h *fakeHost) Explain(_ context.Context, r admin.ExplainRequest) (*admin.Explanation, error) {
	return &admin.Explanation{Method: r.Method, Path: r.Path, Running: true}, nil
}

func (h *fakeHost) Changed() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changed
}

func (h *fakeHost) happens(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status.Events = append(h.status.Events, admin.Event{Stage: "core", Text: text, At: time.Now()})
	close(h.changed)
	h.changed = make(chan struct{})
}

func serve(t *testing.T, h *fakeHost) (*Handler, string) {
	t.Helper()
	page := New(h)
	srv := httptest.NewServer(page)
	t.Cleanup(srv.Close)
	return page, srv.URL
}

func get(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// Whatever a stage calls itself or reports, and whatever is typed, is text on the page.
func TestMarkupIsText(t *testing.T) {
	t.Parallel()
	const evil = `"><script>alert(1)</script><a href='x`
	h := newFakeHost(supervisor.Status{Stage: evil, State: evil, Failure: evil, Version: evil, StandbyFailure: evil})
	h.status.Claims = map[string][]string{evil: {evil}}
	h.status.Checks = []admin.Check{{Name: evil, Failure: evil, Required: true}}
	h.status.Changes = []admin.Change{{By: evil, What: evil, Error: evil}}
	h.happens(evil)
	_, url := serve(t, h)
	for _, path := range []string{"/", "/?find=" + `"><script>`, "/?method=GET&path=" + `/"><script>`} {
		resp, body := get(t, url+strings.ReplaceAll(path, " ", "%20"))
		if resp.StatusCode != http.StatusOK || strings.Contains(body, "<script>") || strings.Contains(body, "href='x") {
			t.Errorf("%s: %s, the page has markup that is not its own", path, resp.Status)
		}
		if got := resp.Header.Get("Content-Security-Policy"); got != policy || strings.Contains(got, "unsafe") {
			t.Errorf("%s: policy %q", path, got)
		}
	}
	h.happens("two\r\nlines\revent: problem\n\n")
	message := readEvent(t, url)
	if strings.Contains(message, "\r") || strings.Contains(message, "\nevent: problem") || strings.Contains(message, "<script>") {
		t.Errorf("the update is %q", message)
	}
}

// readEvent returns the first update.
func readEvent(t *testing.T, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	events := follow(ctx, t, url)
	defer events.Close()
	return nextEvent(t, bufio.NewReader(events))
}

func follow(ctx context.Context, t *testing.T, url string) io.ReadCloser {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatal(resp.Status, resp.Header)
	}
	return resp.Body
}

func nextEvent(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	var event strings.Builder
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line == "\n" {
			return event.String()
		}
		event.WriteString(line)
	}
}

// An event is on the page at once; nobody asks the host when nobody looks.
func TestEventsUpdateThePage(t *testing.T) {
	t.Parallel()
	h := newFakeHost(supervisor.Status{Stage: "core", State: "serving"})
	page, url := serve(t, h)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	body := follow(ctx, t, url)
	events := bufio.NewReader(body)
	nextEvent(t, events)
	h.happens("the first event")
	for !strings.Contains(nextEvent(t, events), "the first event") {
	}
	body.Close()
	until(t, "the updates end", func() bool {
		page.feed.mu.Lock()
		defer page.feed.mu.Unlock()
		return page.feed.readers == 0 && page.feed.stop == nil
	})
}

func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so within %s: %s", patience, what)
		}
	}
}

// A browser that does not read is cut off, and does not keep updates from another.
func TestBrowserThatDoesNotRead(t *testing.T) {
	t.Parallel()
	h := newFakeHost(supervisor.Status{Stage: "core", State: "serving", Failure: strings.Repeat("long ", 1<<20)})
	page, url := serve(t, h)
	page.feed.writeTimeout = 200 * time.Millisecond
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
	readers := func() int {
		page.feed.mu.Lock()
		defer page.feed.mu.Unlock()
		return page.feed.readers
	}
	until(t, "it is let in", func() bool { return readers() == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	events := bufio.NewReader(follow(ctx, t, url))
	nextEvent(t, events)
	until(t, "it is cut off", func() bool { return readers() == 1 })
	nextEvent(t, events)
}

// A crowd of browsers costs what a hundred do; the others are told to come again.
func TestCrowd(t *testing.T) {
	t.Parallel()
	h := newFakeHost(supervisor.Status{Stage: "core", State: "serving"})
	page, url := serve(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range maxReaders {
		defer follow(ctx, t, url).Close()
	}
	for range 10000 - maxReaders {
		resp, _ := get(t, url+"/events")
		if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
			t.Fatalf("one too many: %s", resp.Status)
		}
	}
	page.Close()
	if resp, _ := get(t, url+"/events"); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("at the end: %s", resp.Status)
	}
	until(t, "all streams end", func() bool {
		page.feed.mu.Lock()
		defer page.feed.mu.Unlock()
		return page.feed.readers == 0
	})
}

// However many browsers follow a page, the host is asked once in a period, and not at all when the last has gone.
func TestUpdatesAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		f := newFeed(newFakeHost(), func(context.Context) ([]byte, error) { asked++; return nil, nil })
		for range maxReaders {
			if !f.enter() {
				t.Fatal("there is no room")
			}
		}
		time.Sleep(10*period + quick)
		synctest.Wait()
		if asked != 11 { // once at the beginning
			t.Errorf("asked %d times in ten periods", asked)
		}
		for range maxReaders {
			f.leave()
		}
		time.Sleep(10 * period)
		synctest.Wait()
		if asked != 11 {
			t.Errorf("asked %d times more without a browser", asked-11)
		}
	})
}

// Ways are drawn the wider the more takes them, and the way past a stage has what goes to those downstream.
func TestFlows(t *testing.T) {
	t.Parallel()
	s := admin.Status{Stages: []supervisor.Status{{Stage: "a"}, {Stage: "b"}}, Traffic: []traffic.Stage{
		{Stage: "a", From: []traffic.Hop{{PerSecond: 1}}},
		{Stage: "b", From: []traffic.Hop{{PerSecond: 100}, {From: "a", PerSecond: 1000}}},
	}}
	l := newLive(s, "")
	a, b := l.Stages[0], l.Stages[1]
	if a.Passing.Rate != "100/s" || b.Passing.Rate != "0/s" || !b.Last || a.Last {
		t.Errorf("%+v %+v", a, b)
	}
	if len(b.Hops) != 1 || b.Hops[0].From != "a" || !(a.Direct.Width < b.Direct.Width && b.Direct.Width < b.Hops[0].Width) {
		t.Errorf("%+v %+v", a, b)
	}
	if wide := flowOf(1e12).Width; wide > 10 {
		t.Errorf("width %v", wide)
	}
}

// The sentence at the top says what is wrong first.
func TestSummary(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]admin.Status{
		"good: all stages serve":         {Host: admin.HostStatus{Ready: true}, Stages: []supervisor.Status{{Stage: "a", State: "serving"}}},
		"busy: the server is starting":   {Stages: []supervisor.Status{{Stage: "a", State: "serving"}}},
		"bad: b is down; a is preparing": {Host: admin.HostStatus{Ready: true}, Stages: []supervisor.Status{{Stage: "a", State: "preparing"}, {Stage: "b", State: "down"}}},
		"busy: all stages serve; 1 health check fails": {Host: admin.HostStatus{Ready: true}, Stages: []supervisor.Status{{Stage: "a", State: "serving"}},
			Checks: []admin.Check{{Name: "a/x", Failure: "broken"}}},
		"busy: a: canary 30%": {Host: admin.HostStatus{Ready: true}, Stages: []supervisor.Status{{Stage: "a", State: "serving", PID: 1,
			Probation: &supervisor.Probation{From: "1", To: "2", Canary: &supervisor.CanaryStatus{Plan: canary.Plan{Shares: []float64{0.3, 1}}}}}}},
	} {
		if l := newLive(s, ""); l.Mood+": "+l.Summary != want {
			t.Errorf("%s: %s, want %s", l.Mood, l.Summary, want)
		}
	}
}
