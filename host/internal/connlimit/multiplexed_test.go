package connlimit

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// multiplexed serves HTTP/2: /wait waits until the test ends, /unread has a body that is not read before, /ends one
// that is never; other bodies are read, and the response has as many bytes as the query says. Requests of anybody but
// unknown clients make their connection known.
func multiplexed(t *testing.T, heads int64) *fixture {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{network: "tcp", address: l.Addr().String(), release: make(chan struct{})}
	f.Listener = New(l, Options{Heads: heads, Unknown: true, Refused: f.refuse})
	srv := &http.Server{MaxHeaderBytes: 1 << 20, Protocols: &http.Protocols{}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := f.From(r.RemoteAddr)
		held, serve := c.Begin(r)
		if !serve {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		defer c.End(w, held)
		if r.Header.Get("Authorization") != "" {
			c.Known()
		}
		switch r.URL.Path {
		case "/ends":
			return
		case "/wait", "/unread":
			select {
			case <-f.release:
			case <-r.Context().Done():
			}
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		var size int
		_, _ = fmt.Sscan(r.URL.RawQuery, &size)
		for ; size > 0; size -= 32 << 10 {
			_, _ = w.Write(make([]byte, min(size, 32<<10)))
		}
	})}
	srv.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = srv.Serve(f) }()
	t.Cleanup(func() { srv.Close() })
	return f
}

// frames is a client that sends frames as it likes.
type frames struct {
	*http2.Framer
	conn   net.Conn
	stream uint32
	open   bool // a head is not complete
	// sent are the bytes of that head, and of bodies that nobody reads.
	head, unread int
}

func (f *fixture) frames(t *testing.T, settings ...http2.Setting) *frames {
	t.Helper()
	conn := f.dial(t)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	c := &frames{Framer: http2.NewFramer(conn, conn), conn: conn, stream: 1}
	if err := c.WriteSettings(settings...); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	return c
}

// head begins a request. Its errors are those of a connection that is closed.
func (c *frames) request(path string, known, endStream, endHeaders bool) {
	var block bytes.Buffer
	method := "GET"
	if !endStream {
		method = "POST"
	}
	enc := hpack.NewEncoder(&block)
	for _, h := range [][2]string{{":method", method}, {":scheme", "http"}, {":authority", "x"}, {":path", path}, {"authorization", "x"}} {
		if h[0] != "authorization" || known {
			_ = enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
		}
	}
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: c.stream, BlockFragment: block.Bytes(), EndStream: endStream, EndHeaders: endHeaders})
	c.open = !endHeaders
	if endHeaders {
		c.stream += 2
	}
}

// more sends more of a head that is not complete: fields that are not indexed.
func (c *frames) more(size int) {
	value := strings.Repeat("x", size)
	var block bytes.Buffer
	_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: fmt.Sprint("x-", c.head), Value: value, Sensitive: true})
	_ = c.WriteContinuation(c.stream, false, block.Bytes())
	c.head += block.Len()
}

// What an unknown client has sent counts though its requests are under way, as these do, and is given back. Who is known
// stays.
func TestUnknownBesideRequests(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]func(*frames){
		"a head": func(c *frames) {
			c.request("/wait", false, true, true)
			c.request("/x", false, true, false)
			for range 60 {
				c.more(16_000)
			}
		},
		"bodies": func(c *frames) {
			for range 20 {
				stream := c.stream
				c.request("/unread", false, false, true)
				for range 3 {
					_ = c.WriteData(stream, false, make([]byte, 16_000))
				}
			}
		},
		"requests": func(c *frames) {
			for range 50 {
				c.request("/wait", false, true, true)
			}
		},
	} {
		const heads = 8 << 20
		f := multiplexed(t, heads)
		patient := f.frames(t)
		patient.request("/wait", true, true, true)
		eventually(t, "the request has not begun", func() bool { return active(f) == 1 })
		for range 30 {
			hold(f.frames(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
		}
		eventually(t, name+": no connection is closed", func() bool { return strings.Contains(f.reasons(), Heads) && len(f.Open()) < 30 })
		eventually(t, name+": more is held than may be", func() bool { return f.held.Load() <= heads })
		if c := f.From(patient.conn.LocalAddr().String()); c == nil || c.active.Load() != 1 {
			t.Errorf("%s: the connection of who is known is closed", name)
		}
		f.endsEmpty(t)
	}
}

// endsEmpty closes all connections, also those that are accepted late, and waits until nothing counts.
func (f *fixture) endsEmpty(t *testing.T) {
	t.Helper()
	eventually(t, "what was held is not given back", func() bool {
		for _, c := range f.Open() {
			c.Close()
		}
		return f.held.Load() == 0 && f.leaving.Load() == 0
	})
}

func active(f *fixture) (n int64) {
	for _, c := range f.Open() {
		n += c.active.Load()
	}
	return n
}

// A client that is known can do for ever what clients do: nothing of it counts.
func TestCommonUseCountsForNothing(t *testing.T) {
	t.Parallel()
	f := multiplexed(t, 16<<20)
	transport := &http.Transport{Protocols: &http.Protocols{}, MaxConnsPerHost: 1}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: patience}
	ask := func(path string, body io.Reader) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+f.address+path, body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "x")
		r.Header.Set("X-Token", strings.Repeat("x", 3000))
		resp, err := client.Do(r)
		if err != nil {
			t.Error(path, err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	ask("/", strings.NewReader(strings.Repeat("x", 8<<20)))
	ctx, cancel := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	watch.Go(func() { // it is under way all the time
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.address+"/wait", nil)
		r.Header.Set("Authorization", "x")
		if resp, err := client.Do(r); err == nil {
			_ = resp.Body.Close()
		}
	})
	eventually(t, "the request has not begun", func() bool { return active(f) == 1 })
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 100 {
				ask("/?"+fmt.Sprint(i<<14), strings.NewReader(strings.Repeat("x", i<<10)))
				ask("/ends", strings.NewReader(strings.Repeat("x", i<<11)))
				ask("/", slow{strings.NewReader(strings.Repeat("x", i))})
			}
		})
	}
	all.Wait()
	eventually(t, "bytes count", func() bool { return f.held.Load() == 0 }) // the ends of the last streams may be late
	if got := f.reasons(); got != "" {
		t.Errorf("refused are %q", got)
	}
	cancel()
	watch.Wait()
}

// slow gives a byte at a time, without a length.
type slow struct{ io.Reader }

func (s slow) Read(p []byte) (int, error) { return s.Reader.Read(p[:1]) }

// Whatever frames come, in whatever state streams and windows are: what an unknown client has sent counts, or the connection
// is closed. Of who is known that of a head that is not complete does, without what bodies under way may hold, and
// what the server has sent since.
func TestFramesOfAllKinds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		f := multiplexed(t, 1<<40)
		random := rand.New(rand.NewPCG(seed, 1))
		var window uint32
		known := seed%2 == 1
		if !known && random.IntN(2) == 0 {
			window = 1 << 20
		}
		c := f.frames(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
		c.request("/", known, true, true)
		var waiting, uploads []uint32
		var did []string
		for range 40 {
			did = append(did, c.step(random, known, &waiting, &uploads))
		}
		held := c.head + c.unread - 2*overhead*int(c.stream)
		if known {
			held = c.head - len(uploads)*bodyCost - 2*overhead*int(c.stream) - 4096
		}
		counts := func() int64 {
			for _, conn := range f.Open() {
				conn.mu.Lock()
				defer conn.mu.Unlock()
				return conn.held
			}
			return 1 << 40 // it was closed, as a server may for frames that are wrong
		}
		deadline := time.Now().Add(patience)
		for want := int64(held) - free; counts() < want; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("seed %d: %d bytes count, and %d of heads and %d of bodies are held, after\n%s", seed, counts(), c.head, c.unread, strings.Join(did, "\n"))
			}
		}
		f.endsEmpty(t)
	}
}

// step sends something.
func (c *frames) step(random *rand.Rand, known bool, waiting, uploads *[]uint32) string {
	if c.open { // nothing else may come
		size := 1 + random.IntN(16_000)
		c.more(size)
		return fmt.Sprint("more of a head: ", size)
	}
	pick := func(of []uint32) uint32 {
		if len(of) == 0 {
			return 0
		}
		return of[random.IntN(len(of))]
	}
	switch random.IntN(9) {
	case 0:
		*waiting = append(*waiting, c.stream)
		c.request("/wait", known, true, true)
		return "a request that waits"
	case 1:
		*uploads = append(*uploads, c.stream)
		c.request("/unread", known, false, true)
		return "a body that nobody reads"
	case 2, 3:
		if id := pick(*uploads); id != 0 {
			n := 1 + random.IntN(8000)
			_ = c.WriteData(id, false, make([]byte, n))
			c.unread += n
			return fmt.Sprint("of such a body: ", n)
		}
	case 4:
		size := random.IntN(1 << 16)
		c.request(fmt.Sprint("/?", size), known, true, true)
		return fmt.Sprint("a response of ", size)
	case 5:
		_ = c.WritePing(false, [8]byte{})
		return "a ping"
	case 6:
		_ = c.WriteWindowUpdate(0, 1+uint32(random.IntN(1000)))
		return "a window"
	case 7:
		if id := pick(*waiting); id != 0 {
			_ = c.WriteRSTStream(id, http2.ErrCodeCancel)
			return "a reset"
		}
	case 8:
		if random.IntN(4) == 0 {
			c.request("/x", known, true, false)
			return "a head that is not complete"
		}
	}
	return "nothing"
}
