package relay

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/relay/h1"
)

// chainWithRoom is newChain with that much room for large heads of the first stage.
func chainWithRoom(t *testing.T, config Config, room *h1.Budget, sockets ...string) *Chain {
	t.Helper()
	chain := newChain(t, config)
	chain.heads.budget("a")
	chain.heads.of["a"] = room
	stages := make([]Stage, len(sockets))
	for i, socket := range sockets {
		stages[i] = Stage{Name: string(rune('a' + i)), Socket: socket}
	}
	chain.Set(Tables{All: order(len(stages))}, stages)
	return chain
}

// TestLargeHeadsAreBounded has responses with large heads at the same time: when they hold too
// much, the next one waits and is refused then, and there is room again when they have gone.
func TestLargeHeadsAreBounded(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	socket := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Big", strings.Repeat("x", 1<<20))
		_ = http.NewResponseController(w).Flush()
		if r.URL.Path == "/wait" {
			<-release
		}
	}))
	reached := make(chan string, 1)
	config := Config{Limited: func(stage, limit, _ string) { reached <- stage + " " + limit }}
	chain := chainWithRoom(t, config, h1.NewBudget(h1.MaxHead+1<<20/2, 10*time.Millisecond, nil), socket) // one head and a half
	ask := func(path string) int {
		rec := httptest.NewRecorder()
		chain.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		return rec.Code
	}
	var waits sync.WaitGroup
	first := &begun{ResponseRecorder: httptest.NewRecorder(), head: make(chan struct{})}
	waits.Go(func() {
		chain.ServeHTTP(first, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/wait", nil))
	})
	<-first.head
	if status := ask("/"); status != http.StatusBadGateway || <-reached != "a "+LimitHeads {
		t.Errorf("without room: %d", status)
	}
	close(release)
	waits.Wait()
	for range 3 {
		if status := ask("/"); status != http.StatusOK {
			t.Errorf("with room again: %d", status)
		}
	}
}

// begun tells when the head of a response is written.
type begun struct {
	*httptest.ResponseRecorder
	head chan struct{}
}

func (b *begun) WriteHeader(status int) {
	b.ResponseRecorder.WriteHeader(status)
	close(b.head)
}

// A large head counts until the client has it, also where no body follows it.
func TestLargeHeadCountsUntilTheClientHasIt(t *testing.T) {
	t.Parallel()
	socket := always(t, "HTTP/1.1 204 No Content\r\nBig: "+strings.Repeat("x", 1<<20)+"\r\n\r\n")
	chain := chainWithRoom(t, Config{}, h1.NewBudget(h1.MaxHead, 10*time.Millisecond, nil), socket)
	send := func(w http.ResponseWriter) {
		chain.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	}
	slow := &slowClient{ResponseRecorder: httptest.NewRecorder(), flushes: make(chan struct{}), read: make(chan struct{})}
	var waits sync.WaitGroup
	waits.Go(func() { send(slow) })
	within(t, "the head goes to the first client", slow.flushes)
	for _, want := range []int{http.StatusBadGateway, http.StatusNoContent} {
		rec := httptest.NewRecorder()
		if send(rec); rec.Code != want {
			t.Errorf("the next one: %d, want %d", rec.Code, want)
		}
		if want == http.StatusBadGateway {
			close(slow.read)
			waits.Wait()
		}
	}
}

// slowClient is a client that takes nothing until read is closed.
type slowClient struct {
	*httptest.ResponseRecorder
	flushes, read chan struct{}
}

func (s *slowClient) Flush() {
	close(s.flushes)
	<-s.read
}

// More large heads at once than there is room for come one after the other: what has been executed does not fail.
func TestLargeHeadsWaitForRoom(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 12<<20)
	socket := always(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Big: "+big+"\r\n\r\n")
	chain := chainWithRoom(t, Config{}, h1.NewBudget(2*h1.MaxHead, time.Minute, nil), socket)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			rec := httptest.NewRecorder()
			chain.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
			if rec.Code != http.StatusOK || rec.Header().Get("X-Big") != big {
				t.Error(rec.Code)
			}
		})
	}
	all.Wait()
}

// What stages send that decline is not kept while the next one has the request; of their warnings as much as clients can use.
//
//nolint:paralleltest // it measures the memory of the process
func TestDeclinesHoldLittle(t *testing.T) {
	const clients = 20
	first := always(t, "HTTP/1.1 404 Not Found\r\nX-Catena-Decline: 1\r\nContent-Length: 0\r\nWarning: 299 - \"small\"\r\nWarning: 299 - \""+strings.Repeat("x", 12<<20)+"\"\r\n\r\n")
	release := make(chan struct{})
	second := serveStage(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	var limited atomic.Int64
	config := Config{Limited: func(string, string, string) { limited.Add(1) }}
	chain := chainWithRoom(t, config, h1.NewBudget(bounds.StageHeads, time.Minute, nil), first, second)
	before := heap()
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			rec := httptest.NewRecorder()
			chain.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
			if got := rec.Header()["Warning"]; rec.Code != http.StatusOK || len(got) != 1 || got[0] != `299 - "small"` {
				t.Errorf("%d with %d warnings", rec.Code, len(got))
			}
		})
	}
	eventually(t, "the second stage has all requests", func() bool { return chain.Loads()[1].InFlight == clients })
	if held := heap() - before; held > clients<<20 {
		t.Errorf("%d requests hold %d MiB", clients, held>>20)
	}
	close(release)
	all.Wait()
	if limited.Load() != clients {
		t.Errorf("%d of %d reports of what was left out", limited.Load(), clients)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // what is in pools goes in the second one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Lines cost more than their text.
func TestShortLinesCount(t *testing.T) {
	t.Parallel()
	reached := make(chan string, 1)
	for lines, want := range map[int]int{1000: http.StatusOK, bounds.StageHeads / 256: http.StatusBadGateway} {
		socket := always(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"+strings.Repeat("A:\r\n", lines)+"\r\n")
		chain := newChain(t, Config{Limited: func(stage, limit, _ string) { reached <- stage + " " + limit }}, socket)
		rec := httptest.NewRecorder()
		chain.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		if rec.Code != want || want != http.StatusOK && within(t, "the limit", reached) != "a "+LimitHeads {
			t.Errorf("%d lines: %d", lines, rec.Code)
		}
	}
}

// Of trailers, and of their announcement, as much is passed on as clients can use; the body is whole.
func TestTrailersAreBounded(t *testing.T) {
	t.Parallel()
	names, trailers := "Last", "Last: x\r\n"
	for i := range 20_000 {
		names += fmt.Sprintf(",T%d", i)
		trailers += fmt.Sprintf("U%d: x\r\n", i)
	}
	reached := make(chan string, 10)
	socket := always(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: "+names+"\r\n\r\n2\r\nok\r\n0\r\n"+trailers+"\r\n")
	srv := serve(t, newChain(t, Config{Limited: func(stage, limit, _ string) { reached <- stage + " " + limit }}, socket))
	resp, body := fetch(t, srv, "GET", "/", nil)
	if n := len(resp.Trailer); body != "ok" || n < 100 || n > bounds.ResponseTrailers/64 {
		t.Errorf("%q with %d trailers", body, n)
	}
	if within(t, "the limit", reached) != "a "+LimitHeads {
		t.Error("another limit")
	}
}
