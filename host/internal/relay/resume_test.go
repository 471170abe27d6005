package relay

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/sdk/stagev1/header"
)

// startServer starts one for a chain.
type startServer = func(testing.TB, http.Handler) *httptest.Server

// logLength is how many events the stages of these tests have, with revisions from 1 on.
const logLength = 12

func jsonEvent(kind string, revision int) string {
	return fmt.Sprintf(`{"type":%q,"object":{"metadata":{"resourceVersion":"%d"},"data":"\"}"}}`+"\n", kind, revision)
}

// protobufEvent is written by hand: a field of a message is a key, a length and a value.
func protobufEvent(kind string, revision int) string {
	field := func(number int, value string) string {
		return string(rune(number<<3|2)) + string(rune(len(value))) + value
	}
	object := field(1, field(6, strconv.Itoa(revision)))
	event := field(1, kind) + field(2, field(1, "k8s\x00"+field(2, object)))
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(event)))) + event
}

func cborEvent(kind string, revision int) string {
	text := func(s string) string { return string(rune(0x60+len(s))) + s }
	metadata := "\xa1" + text("resourceVersion") + text(strconv.Itoa(revision))
	return "\xa2" + text("type") + text(kind) + text("object") + "\xa1" + text("metadata") + metadata
}

// leg is one response to a watch.
type leg struct {
	http.ResponseWriter
	r *http.Request
	// number counts the legs from 0.
	number int
	// revision is what the leg is to follow.
	revision int
	// drains says that leave drains.
	drains bool
}

func (l *leg) send(text string) {
	_, _ = io.WriteString(l, text)
	l.ResponseWriter.(http.Flusher).Flush()
}

// drain ends the leg as a stage does that drains.
func (l *leg) drain() { l.Header().Set(http.TrailerPrefix+header.Watch, header.WatchDraining) }

// leave ends the leg because its process drains or dies.
func (l *leg) leave() {
	if !l.drains {
		panic(http.ErrAbortHandler)
	}
	l.drain()
}

// watched serves a watch by processes of a stage: each leg by the next one, which has the place of the one before when
// a leg begins.
type watched struct {
	chain   *Chain
	setting sync.Mutex // Chain.Set is called by one goroutine at a time
	sockets [2]string
	legs    atomic.Int32
	hops    *observed
	resumes chan Resume
}

// set makes these stages the chain.
func (w *watched) set(stages ...Stage) {
	w.setting.Lock()
	defer w.setting.Unlock()
	w.chain.Set(Tables{All: order(len(stages))}, stages)
}

func watchChain(t *testing.T, contentType string, serveLeg func(*leg)) *watched {
	t.Helper()
	w := &watched{hops: &observed{}, resumes: make(chan Resume, logLength)}
	for i := range w.sockets {
		w.sockets[i] = legStage(t, func(l *leg) {
			l.number = int(w.legs.Add(1)) - 1
			w.set(Stage{Name: "a", Socket: w.sockets[1-i]})
			l.Header().Set("Content-Type", contentType)
			serveLeg(l)
		})
	}
	w.chain = newChain(t, Config{Watch: everyRequest, Observe: func(h Hop) {
		w.hops.observe(h)
		if h.Resume != (Resume{}) {
			w.resumes <- h.Resume
		}
	}}, w.sockets[0])
	return w
}

// legStage is a stage that promises to whoever asks, and sends JSON.
func legStage(t *testing.T, serveLeg func(*leg)) (socket string) {
	t.Helper()
	return serveStage(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		l := &leg{ResponseWriter: rw, r: r}
		l.revision, _ = strconv.Atoi(r.URL.Query().Get(queryRevision))
		l.Header().Set("Content-Type", runtime.ContentTypeJSON)
		if r.Header.Get(header.Watch) != "" {
			l.Header().Set(header.Watch, header.WatchResumable)
		}
		serveLeg(l)
	}))
}

func everyRequest(*http.Request) bool { return true }

// get returns the body of a watch.
func (w *watched) get(t *testing.T, start startServer, query string) string {
	t.Helper()
	srv := start(t, w.chain)
	defer srv.Close()
	resp, err := srv.Client().Get(srv.URL + "/watch?" + query)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	if resp.Header.Get(header.Watch)+resp.Trailer.Get(header.Watch) != "" {
		t.Errorf("the client sees %v %v", resp.Header, resp.Trailer)
	}
	return string(body)
}

// Wherever an event is torn, and after whichever a process drains, the client gets each event once, and no part of one.
func TestWatchGoesOn(t *testing.T) {
	t.Parallel()
	for contentType, event := range map[string]func(string, int) string{
		runtime.ContentTypeJSON: jsonEvent, runtime.ContentTypeCBORSequence: cborEvent,
		runtime.ContentTypeProtobuf + ";stream=watch": protobufEvent,
	} {
		for protocol, start := range map[string]startServer{"HTTP/1.1": serve, "HTTP/2": serveHTTP2} {
			t.Run(protocol+" "+contentType, func(t *testing.T) {
				t.Parallel()
				want := ""
				for i := range logLength {
					want += event("MODIFIED", i+1)
				}
				size := len(event("MODIFIED", 1))
				for n := range size {
					each := n%logLength + 1
					w := watchChain(t, contentType, func(l *leg) {
						if l.number > 0 { // what the client has, as a careless process would send it
							l.send(event("BOOKMARK", l.revision) + event("ADDED", max(l.revision-1, 1)))
							l.send(event("MODIFIED", l.revision))
						}
						for i := l.revision + 1; i <= min(l.revision+each, logLength); i++ {
							l.send(event("MODIFIED", i)[:n])
							l.send(event("MODIFIED", i)[n:] + event("BOOKMARK", i))
						}
						if l.revision+each < logLength {
							l.send(event("MODIFIED", l.revision+each+1)[:n]) // a part of one that does not come
							l.drain()
						}
					})
					if got := w.get(t, start, "watch=true&resourceVersion=0&sendInitialEvents=false"); got != want {
						t.Fatalf("torn at %d, %d events a leg:\n%q, want\n%q", n, each, got, want)
					}
					wantHops := strings.Repeat("a resumed, ", (logLength-1)/each) + "a served"
					eventually(t, "the hops are "+wantHops, func() bool { return w.hops.String() == wantHops })
				}
			})
		}
	}
}

// A watch goes on when its process dies, wherever that is, and whatever comes before the next one serves.
func TestWatchOutlivesItsProcess(t *testing.T) {
	t.Parallel()
	event := jsonEvent("MODIFIED", 1)
	die := func(l *leg) { panic(http.ErrAbortHandler) }
	for name, c := range map[string]struct {
		dies func(*watched, *leg)
		hops string
	}{
		"in an event":    {func(_ *watched, l *leg) { l.send(event[:20]); die(l) }, "a aborted, a served"},
		"between events": {func(_ *watched, l *leg) { die(l) }, "a aborted, a served"},
		"in the next head": {func(w *watched, l *leg) {
			if l.number == 1 {
				w.legs.Store(100)
			}
			die(l)
		}, "a lost, a aborted, a served"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var w *watched
			w = watchChain(t, runtime.ContentTypeJSON, func(l *leg) {
				switch {
				case l.number == 0:
					l.send(event)
					c.dies(w, l)
				case l.number == 1 && name == "in the next head":
					c.dies(w, l)
				default:
					l.send(jsonEvent("MODIFIED", l.revision+1))
				}
			})
			want := event + jsonEvent("MODIFIED", 2)
			if got := w.get(t, serve, "sendInitialEvents=false"); got != want {
				t.Errorf("%q, want %q", got, want)
			}
			eventually(t, "the hops are "+c.hops, func() bool { return w.hops.String() == c.hops })
		})
	}
}

// So it does when the end of a body comes in part, and the next process has the socket of the one before.
func TestWatchOutlivesItsTrailer(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"", "0", "0\r\n", "0\r\nX-Catena-Watch: drain", "0\r\nX-Catena-Watch: draining\r\n"} {
		socket := scriptStage(t, func(n int, c *net.UnixConn, r *bufio.Reader) {
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			rest := end
			if n > 0 {
				rest = "0\r\n\r\n"
			}
			event := jsonEvent("MODIFIED", n+1)
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Catena-Watch: resumable\r\n"+
				"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n%s", len(event), event, rest)
		})
		chain := newChain(t, Config{Watch: everyRequest}, socket)
		w := httptest.NewRecorder()
		chain.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/watch?resourceVersion=0&sendInitialEvents=false", nil))
		if got := w.Body.String(); got != jsonEvent("MODIFIED", 1)+jsonEvent("MODIFIED", 2) {
			t.Errorf("%q: %q", end, got)
		}
	}
}

// A watch whose process has died waits until another can serve, or until there is none.
func TestWatchWaits(t *testing.T) {
	t.Parallel()
	for name, served := range map[string]bool{"another comes": true, "none comes": false, "the server ends": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var w *watched
			steps := make(chan struct{})
			w = watchChain(t, runtime.ContentTypeJSON, func(l *leg) {
				switch l.number {
				case 0:
					l.send(jsonEvent("MODIFIED", 1))
					w.set(Stage{Name: "a"})
					close(steps)
					panic(http.ErrAbortHandler)
				case 1: // has come up, and is not ready
					l.Header().Del(header.Watch)
					l.WriteHeader(http.StatusServiceUnavailable)
				default:
					l.send(jsonEvent("MODIFIED", 2))
				}
			})
			go func() {
				<-steps
				eventually(t, "the watch is with no process", func() bool {
					w.chain.draining.mu.Lock()
					defer w.chain.draining.mu.Unlock()
					return len(w.chain.draining.endpoints) == 0
				})
				if served {
					w.set(Stage{Name: "a", Socket: w.sockets[1], Held: true})
					w.set(Stage{Name: "a", Socket: w.sockets[1]})
				} else if name == "none comes" {
					w.set()
				} else {
					w.chain.EndWatches()
				}
			}()
			want := jsonEvent("MODIFIED", 1)
			if served {
				want += jsonEvent("MODIFIED", 2)
			}
			if got := w.get(t, serve, "sendInitialEvents=false"); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// A watch whose side changes goes on with the other process, wherever in an event that is.
func TestWatchMovesWithItsSide(t *testing.T) {
	t.Parallel()
	for _, part := range []int{0, 20} {
		var chain *Chain
		old := legStage(t, func(l *leg) {
			l.send(jsonEvent("ADDED", 6) + jsonEvent("ADDED", 7)[:part])
			<-l.r.Context().Done()
		})
		more := make(chan struct{})
		next := legStage(t, func(l *leg) {
			l.send(jsonEvent("ADDED", l.revision+1))
			<-more
		})
		chain = newChain(t, Config{Watch: everyRequest}, old)
		srv := serve(t, chain)
		resp, err := srv.Client().Get(srv.URL + "/watch?new&resourceVersion=5")
		if err != nil {
			t.Fatal(err)
		}
		body := bufio.NewReader(resp.Body)
		if first, err := body.ReadString('\n'); first != jsonEvent("ADDED", 6) {
			t.Fatalf("%q, %v", first, err)
		}
		split(chain, []Stage{{Name: "a", Socket: old}}, []Stage{{Name: "a", Socket: next}})
		if second, err := body.ReadString('\n'); second != jsonEvent("ADDED", 7) {
			t.Errorf("with a part of %d bytes: %q, %v", part, second, err)
		}
		chain.watches.mu.Lock()
		for _, o := range chain.watches.m {
			if o.moved(chain.state.Load()) {
				t.Error("it would move once more")
			}
		}
		chain.watches.mu.Unlock()
		close(more)
		if rest, err := io.ReadAll(body); len(rest) > 0 || err != nil {
			t.Errorf("then: %q, %v", rest, err)
		}
		resp.Body.Close()
	}
}

// What a stage hands on of a watch goes on, too: the stage sees one body.
func TestHandedOnWatchGoesOn(t *testing.T) {
	t.Parallel()
	var h *host
	front := serveStage(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(header.Request)
		resp, err := h.send(r.Context(), http.MethodGet, "token-a", header.Next, id, r.RequestURI, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		if resp.Header.Get(header.Watch) != "" {
			t.Error("the stage sees what is for the host")
		}
		_, _ = io.Copy(rw, resp.Body)
	}))
	next := legStage(t, func(l *leg) { l.send(jsonEvent("ADDED", 7)) })
	first := legStage(t, func(l *leg) {
		h.chain.Set(Tables{All: order(2)}, []Stage{{Name: "a", Socket: front}, {Name: "b", Socket: next}})
		l.send(jsonEvent("ADDED", 6))
		l.drain()
	})
	h = newHost(t, front, first)
	h.chain.config.Watch = everyRequest
	w := httptest.NewRecorder()
	h.chain.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/watch?resourceVersion=5", nil))
	if got := w.Body.String(); got != jsonEvent("ADDED", 6)+jsonEvent("ADDED", 7) {
		t.Errorf("%q", got)
	}
}

// Many watches that are to go on do not come to a process all at once.
func TestWatchesComeOneBehindTheOther(t *testing.T) {
	t.Parallel()
	const watches = 3 * legsAtOnce
	var begun, at, most atomic.Int32
	together := make(chan struct{})
	next := legStage(t, func(l *leg) {
		now := at.Add(1)
		for before := most.Load(); now > before && !most.CompareAndSwap(before, now); before = most.Load() {
		}
		if now == legsAtOnce {
			close(together)
		}
		<-together
		at.Add(-1)
		l.send("")
	})
	gone := make(chan struct{})
	first := legStage(t, func(l *leg) {
		l.send("")
		begun.Add(1)
		<-gone
		panic(http.ErrAbortHandler)
	})
	chain := newChain(t, Config{Watch: everyRequest}, first)
	var pending sync.WaitGroup
	for range watches {
		pending.Go(func() {
			r := httptest.NewRequest(http.MethodGet, "/watch?resourceVersion=5", nil)
			chain.ServeHTTP(httptest.NewRecorder(), r)
		})
	}
	eventually(t, "the watches have begun", func() bool { return begun.Load() == watches })
	chain.Set(Tables{All: order(1)}, []Stage{{Name: "a", Socket: next}})
	close(gone)
	pending.Wait()
	if most.Load() != legsAtOnce {
		t.Errorf("%d at once", most.Load())
	}
}

// Bookmarks are for who has asked, and tell the position to the host in any case.
func TestWatchBookmarks(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"":                          jsonEvent("ADDED", 7),
		"allowWatchBookmarks=true&": jsonEvent("ADDED", 7) + jsonEvent("BOOKMARK", 9),
	} {
		w := watchChain(t, runtime.ContentTypeJSON, func(l *leg) {
			if l.number == 0 {
				l.send(jsonEvent("ADDED", 7) + jsonEvent("BOOKMARK", 9))
				l.drain()
				return
			}
			parameters := l.r.URL.Query()
			bookmarks := parameters.Get(queryBookmarks) == "true"
			if l.revision != 9 || bookmarks != (query != "") || parameters.Get("labelSelector") != "a=b" ||
				parameters.Has(queryInitial) || parameters.Has(queryMatch) {
				t.Errorf("the next leg: %s", l.r.URL.RawQuery)
			}
			if seconds := parameters.Get(queryTimeout); seconds != "60" && seconds != "59" {
				t.Errorf("the next leg has %q seconds", seconds)
			}
		})
		const initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
		got := w.get(t, serve, query+"labelSelector=a%3Db&timeoutSeconds=60&"+initial)
		if got != want {
			t.Errorf("%q: %q", query, got)
		}
	}
}

// A client can read what the stage has left to the host to compress as soon as it is sent.
func TestWatchIsCompressed(t *testing.T) {
	t.Parallel()
	end := strings.Replace(jsonEvent("BOOKMARK", 7), `"7"`, `"7","annotations":{"k8s.io/initial-events-end":"true"}`, 1)
	read := make(chan struct{})
	w := watchChain(t, runtime.ContentTypeJSON, func(l *leg) {
		send := func(text string) {
			l.send(text)
			<-read
		}
		if l.number == 0 {
			l.Header().Set(header.Watch, header.WatchGzip)
			send(jsonEvent("ADDED", 7))
			send(jsonEvent("ADDED", 6))
			send(end + jsonEvent("ADDED", 8)[:20])
			l.drain()
			return
		}
		if l.r.URL.RawQuery != "resourceVersion=7&allowWatchBookmarks=true" {
			t.Errorf("the next leg: %s", l.r.URL.RawQuery)
		}
		send(jsonEvent("ADDED", 8))
		l.send(jsonEvent("ADDED", 9))
	})
	w.chain.EndWatches() // is about those that there are
	srv := serve(t, w.chain)
	r, err := http.NewRequest(http.MethodGet, srv.URL+"/watch?sendInitialEvents=true&allowWatchBookmarks=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept-Encoding", "gzip") // so that the client does not hide it
	resp, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if h := resp.Header; h.Get("Content-Encoding") != "gzip" || !slices.Contains(h["Vary"], "Accept-Encoding") {
		t.Errorf("the head: %v", h)
	}
	unzipped, err := gzip.NewReader(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	events := bufio.NewReader(unzipped)
	want := []string{jsonEvent("ADDED", 7), jsonEvent("ADDED", 6), end, jsonEvent("ADDED", 8), jsonEvent("ADDED", 9)}
	for i, want := range want {
		if event, err := events.ReadString('\n'); event != want {
			t.Fatalf("%q, %v, want %q", event, err, want)
		}
		if i < 4 {
			read <- struct{}{}
		}
	}
	if rest, err := io.ReadAll(events); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v at the end", rest, err)
	}
}

// A watch ends, with what the client has got, if no process may go on with it, however it leaves its process.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	const from = "resourceVersion=5"
	first := jsonEvent("ADDED", 7)
	both, bookmark := first+jsonEvent("ADDED", 8), jsonEvent("BOOKMARK", 8)
	past := jsonEvent("ADDED", 8) + jsonEvent("ADDED", 3)
	long := strings.Repeat("x", bounds.WatchEvent+1)
	type before = func(*watched, *leg)
	leaves := func(text string) before {
		return func(_ *watched, l *leg) {
			l.send(text)
			l.leave()
		}
	}
	with := func(key, value, text string) before {
		return func(w *watched, l *leg) {
			l.Header().Set(key, value)
			leaves(text)(w, l)
		}
	}
	after := func(do before) before {
		return func(w *watched, l *leg) {
			do(w, l)
			leaves(first)(w, l)
		}
	}
	leave := func(w *watched, _ *leg) { w.set() }
	next := func(key, value string) func(*leg) {
		return func(l *leg) {
			l.Header().Set(key, value)
			l.send(jsonEvent("ADDED", 8))
		}
	}
	// The host does not know that what it is not told apart has ended because a process drains.
	const untold ResumeResult = "untold"
	for name, c := range map[string]struct {
		query string
		first before
		next  func(*leg) // if there is another leg
		want  string
		// result is that of the latest attempt to go on.
		result ResumeResult
	}{
		"the stage has another reason":  {from, func(_ *watched, l *leg) { l.send(first) }, nil, first, ""},
		"the stage promises nothing":    {from, with(header.Watch, "", first), nil, first, untold},
		"it has bookmarks alone":        {from, with(header.Watch, header.WatchBookmarks, first+bookmark), nil, first, NotPromised},
		"it is compressed":              {from, with("Content-Encoding", "x", first), nil, first, untold},
		"it is no encoding of events":   {from, with("Content-Type", "text/plain", first), nil, first, untold},
		"the initial events come still": {"", leaves(first), nil, first, NoPosition},
		"they are not over":             {"resourceVersion=5&sendInitialEvents=true", leaves(first), nil, first, NoPosition},
		"the order is another":          {"resourceVersion=7", leaves(both + first), nil, both + first, NoPosition},
		"an event is unknown":           {from, leaves(first + "{}\n"), nil, first + "{}\n", NoPosition},
		"an event is too long":          {from, leaves(first + long), nil, first + long, NoPosition},
		"the server ends":               {from, after(func(w *watched, _ *leg) { w.chain.EndWatches() }), nil, first, NotWanted},
		"the stage has left":            {from, after(leave), nil, first, NoProcess},
		"the process stays": {from, after(func(w *watched, l *leg) {
			if l.drains {
				w.set(Stage{Name: "a", Socket: w.sockets[0]})
			} else {
				leave(w, l)
			}
		}), nil, first, NoProcess},
		"the query has it twice":  {from + "&resourceVersion=6", leaves(first), nil, first, untold},
		"the query escapes names": {from + "&timeout%53econds=1", leaves(first), nil, first, untold},
		"its time is over": {from + "&timeoutSeconds=1", after(func(*watched, *leg) {
			time.Sleep(1100 * time.Millisecond) // what the client has given it
		}), nil, first, TimeOver},
		"the next process refuses":    {from, leaves(first), func(l *leg) { l.WriteHeader(http.StatusGone) }, first, OtherWatch},
		"it has another encoding":     {from, leaves(first), next("Content-Type", "text/plain"), first, OtherWatch},
		"it promises nothing":         {from, leaves(first), next(header.Watch, ""), first, OtherWatch},
		"it compresses":               {from, leaves(first), next("Content-Encoding", "x"), first, OtherWatch},
		"it is too late":              {from, leaves(first), func(l *leg) { l.send(jsonEvent("ERROR", 9)) }, first, Expired},
		"it declines":                 {from, leaves(first), func(l *leg) { decline(l) }, first, OtherWatch},
		"it does not chunk its body":  {from, leaves(first), next("Content-Length", strconv.Itoa(len(first))), first, OtherWatch},
		"what it sends later is past": {from, leaves(first), func(l *leg) { leaves(past)(nil, l) }, both, OtherWatch},
	} {
		for _, cause := range []ResumeCause{Drained, Broken} {
			t.Run(name+", "+string(cause), func(t *testing.T) {
				t.Parallel()
				var w *watched
				w = watchChain(t, runtime.ContentTypeJSON, func(l *leg) {
					l.drains = cause == Drained
					switch {
					case l.number == 0:
						c.first(w, l)
					case c.next != nil && l.number == 1:
						c.next(l)
					case l.number > 1 && l.revision == 8:
					default:
						t.Errorf("another leg, from %d", l.revision)
					}
				})
				if got := w.get(t, serve, c.query); got != c.want {
					t.Errorf("%.200q, want %.200q", got, c.want)
				}
				eventually(t, "no request is in flight", func() bool {
					loads := w.chain.Loads()
					return len(loads) == 0 || loads[0].InFlight == 0
				})
				result := c.result
				if result == untold {
					if result = ""; cause == Broken {
						result = NotPromised
					}
				}
				w.expectResume(t, cause, result)
			})
		}
	}
}

// expectResume fails the test unless a watch has left processes for that cause, and that was how it went the last time.
func (w *watched) expectResume(t *testing.T, cause ResumeCause, want ResumeResult) {
	t.Helper()
	close(w.resumes)
	latest := ResumeResult("")
	for r := range w.resumes {
		if r.Cause != cause || latest != "" && latest != WatchResumed {
			t.Errorf("%v, after %q", r, latest)
		}
		latest = r.Result
	}
	if latest != want {
		t.Errorf("it is counted as %q, want %q", latest, want)
	}
}

// Watches are counted by whether they outlive their process, for which a stage need not be asked.
func TestWatchesPassThrough(t *testing.T) {
	t.Parallel()
	for stage, want := range map[string]Load{
		"a": {Stage: "a", InFlight: 2, Watches: 1}, "b": {Stage: "a", InFlight: 2, Watches: 1, Resumable: 1},
	} {
		more := make(chan struct{})
		socket := legStage(t, func(l *leg) {
			l.send(jsonEvent("ADDED", 7)[:20])
			<-more
			l.send(jsonEvent("ADDED", 7)[20:])
		})
		isOwn := func(r *http.Request) bool { return r.URL.Path == "/own" }
		chain := newChain(t, Config{Watch: everyRequest, System: isOwn, Watches: func(s string) WatchMode {
			if s == stage {
				return PassThroughWatches
			}
			return ResumeWatches
		}}, socket)
		var pending sync.WaitGroup
		for _, path := range []string{"/watch", "/own"} {
			r := httptest.NewRequest(http.MethodGet, path+"?resourceVersion=5", nil)
			pending.Go(func() { chain.ServeHTTP(httptest.NewRecorder(), r) })
		}
		eventually(t, "both are counted", func() bool { return chain.Loads()[0] == want })
		close(more)
		pending.Wait()
		if got := chain.Loads()[0]; got != (Load{Stage: "a"}) {
			t.Errorf("at the end: %+v", got)
		}
	}
}

// A stage whose processes do not send the same events is found out, where that is wanted.
func TestWatchesAreVerified(t *testing.T) {
	t.Parallel()
	event := func(revision int) string { return jsonEvent("MODIFIED", revision) }
	client := event(11) + event(12) + event(13) + event(14)
	for name, c := range map[string]struct {
		next string
		want ResumeResult
	}{
		"the same":       {event(12) + jsonEvent("BOOKMARK", 12) + event(13) + event(14), WatchResumed},
		"one is missing": {event(12) + event(14), Differs},
		"the last is":    {event(12) + event(13) + jsonEvent("BOOKMARK", 15), Differs},
		"one more":       {event(12) + event(12) + event(13), Differs},
		"one at the end": {event(12) + event(13) + event(14) + event(14), Differs},
		"another kind":   {jsonEvent("ADDED", 12) + event(13) + event(14), Differs},
		"none":           {"", Differs},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := watchChain(t, runtime.ContentTypeJSON, func(l *leg) {
				switch l.number {
				case 0:
					l.send(jsonEvent("ADDED", 7) + jsonEvent("BOOKMARK", 10) + client)
					l.drain()
				case 1:
					if l.revision != 11 {
						t.Errorf("it is asked for what follows %d", l.revision)
					}
					l.send(c.next + event(15))
				default:
					t.Error("there is another leg")
				}
			})
			w.chain.config.Watches = func(string) WatchMode { return VerifyWatches }
			want := client
			if c.want == WatchResumed {
				want += event(15)
			}
			got := w.get(t, serve, "resourceVersion=5&sendInitialEvents=true")
			if got != jsonEvent("ADDED", 7)+want {
				t.Errorf("%q, want %q", got, want)
			}
			w.expectResume(t, Drained, c.want)
		})
	}
}

// A watch whose client has gone while it waits for a process counts as no other's.
func TestWatchWhoseClientHasGone(t *testing.T) {
	t.Parallel()
	var w *watched
	ctx, leave := context.WithCancel(t.Context())
	w = watchChain(t, runtime.ContentTypeJSON, func(l *leg) {
		l.send(jsonEvent("ADDED", 7))
		w.set(Stage{Name: "a"})
		l.drain()
		time.AfterFunc(20*time.Millisecond, leave) // later than the watch waits
	})
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/watch?resourceVersion=5", nil)
	w.chain.ServeHTTP(httptest.NewRecorder(), r)
	w.expectResume(t, Drained, "")
	if got := w.hops.String(); got != "a canceled" {
		t.Errorf("the hops are %s", got)
	}
}

// For client-go, a watch that ends in its first second without an event has failed, and it lists all objects anew.
func TestNoWatchEndsInItsFirstSecond(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		leg func(*leg)
		// later says that the end is later than the stage has it.
		later bool
	}{
		"a reason of the stage": {func(l *leg) { l.send("") }, true},
		"its process dies":      {func(l *leg) { l.send(""); panic(http.ErrAbortHandler) }, true},
		"its process drains":    {func(l *leg) { l.send(""); l.drain() }, true},
		"nothing is promised":   {func(l *leg) { l.Header().Del(header.Watch); l.send(""); panic(http.ErrAbortHandler) }, true},
		"initial events":        {func(l *leg) { l.send(jsonEvent("ADDED", 7) + jsonEvent("BOOKMARK", 7)) }, true},
		"passed through": {func(l *leg) {
			l.Header().Del(header.Watch)
			l.send(jsonEvent("ADDED", 7) + jsonEvent("BOOKMARK", 7))
		}, true},
		"an event after them": {func(l *leg) {
			l.send(jsonEvent("ADDED", 7) + jsonEvent("BOOKMARK", 7) + jsonEvent("ADDED", 8))
		}, false},
		"no watch": {func(l *leg) {
			l.WriteHeader(http.StatusNotFound)
			l.send("")
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket := legStage(t, c.leg)
			chain := newChain(t, Config{Watch: everyRequest}, socket)
			r := httptest.NewRequest(http.MethodGet, "/watch?allowWatchBookmarks=true", nil)
			began := time.Now()
			chain.ServeHTTP(httptest.NewRecorder(), r)
			if took := time.Since(began); (took >= leastWatch) != c.later {
				t.Errorf("it ends after %s", took)
			}
		})
	}
}

// What has begun of long events takes room, which is given back.
func TestLongEventsOfWatches(t *testing.T) {
	t.Parallel()
	long := strings.Replace(jsonEvent("ADDED", 7), `"data"`, `"`+strings.Repeat("x", 3<<20)+`"`, 1)
	w := watchChain(t, runtime.ContentTypeJSON, func(l *leg) {
		if l.number == 0 {
			l.send(long + long[:2<<20])
			l.drain()
			return
		}
		if l.revision != 7 {
			t.Errorf("the next leg follows %d", l.revision)
		}
		l.send(jsonEvent("ADDED", 8))
	})
	for _, start := range []startServer{serve, serveHTTP2} {
		w.legs.Store(0)
		if got := w.get(t, start, "resourceVersion=5"); got != long+jsonEvent("ADDED", 8) {
			t.Errorf("%d bytes, want %d", len(got), len(long))
		}
	}
	budget := w.chain.chunks.budget("a")
	if !budget.TryTake(bounds.StageChunks) {
		t.Fatal("not all room is given back")
	}
	w.legs.Store(0)
	if got := w.get(t, serveHTTP2, "resourceVersion=5"); got != long+long[:2<<20] {
		t.Errorf("without room: %d bytes", len(got))
	}
}

func TestWatchQuery(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]watchQuery{
		"":          {plain: true, initial: true},
		"watch=1&&": {plain: true, initial: true, others: "watch=1"},
		"allowWatchBookmarks=true&resourceVersion=7&timeout=5m&timeoutSeconds=300&watch=true": {
			plain: true, revision: 7, bookmarks: true, timeout: 5 * time.Minute, others: "timeout=5m&watch=true"},
		"resourceVersion=0&sendInitialEvents=false": {plain: true},
		"resourceVersion=18446744073709551615":      {plain: true, revision: 1<<64 - 1},
		"resourceVersion=18446744073709551616":      {},
		"resourceVersion=07":                        {},
		"resourceVersion=%37":                       {},
		"resourceVersion=7&resourceVersion=7":       {},
		"resourceVersion=":                          {},
		"resource%56ersion=7":                       {},
		"allowWatchBookmarks":                       {}, // is true for Kubernetes
		"allowWatchBookmarks=TRUE":                  {},
		"sendInitialEvents=yes":                     {},
		"timeoutSeconds=-1":                         {},
		"timeoutSeconds=99999999999999999":          {},
		"labelSelector=a%3Db&x=x;y":                 {plain: true, initial: true, others: "labelSelector=a%3Db&x=x;y"},
	} {
		if got := parseWatchQuery(raw); got != want {
			t.Errorf("%q: %+v, want %+v", raw, got, want)
		}
	}
}
