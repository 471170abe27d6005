package relay

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/catena-dev/catena/host/internal/relay/h1"
)

// vias are the ways to a stage that the benchmarks compare, each as a handler over
// the stage's socket: the stage's own handler without a hop, the relay, and the
// standard library's proxy, as it comes and with a pool of buffers like the relay's.
// Both proxies may keep as many idle connections as the relay.
func vias(b *testing.B, socket string) []via {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		MaxIdleConnsPerHost: h1.MaxIdle,
		DisableCompression:  true,
	}
	b.Cleanup(transport.CloseIdleConnections)
	target := &url.URL{Scheme: "http", Host: "stage"}
	proxy := func(pool httputil.BufferPool) http.Handler {
		return &httputil.ReverseProxy{
			Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
			Transport:     transport,
			BufferPool:    pool,
			FlushInterval: -1,
		}
	}
	return []via{
		{"direct", stageHandler()},
		{"relay", newChain(b, Config{}, socket)},
		{"proxy", proxy(nil)},
		{"proxy-pooled", proxy(proxyBuffers{})},
	}
}

type via struct {
	name string
	http.Handler
}

// proxyBuffers gives the standard library's proxy a pool, for a fair comparison.
type proxyBuffers struct{}

func (proxyBuffers) Get() []byte {
	b := proxyPool.Get().(*[128 << 10]byte)
	return b[:]
}
func (proxyBuffers) Put(b []byte) { proxyPool.Put((*[128 << 10]byte)(b)) }

var proxyPool = sync.Pool{New: func() any { return new([128 << 10]byte) }}

// BenchmarkGet is the cost of a hop: time, CPU time of host, client and stage
// together (cpu-µs/op), allocations of host and client. The client allocates nothing.
func BenchmarkGet(b *testing.B) {
	stage := startStage(b)
	for _, size := range []int{0, 1 << 10, 256 << 10, 8 << 20} {
		for _, conns := range []int{1, 16, 256} {
			for _, v := range vias(b, stage.socket) {
				b.Run(fmt.Sprintf("size=%d/conns=%d/via=%s", size, conns, v.name), func(b *testing.B) {
					request := fmt.Appendf(nil, "GET /size/%d HTTP/1.1\r\nHost: h\r\nAccept: application/json\r\nUser-Agent: bench\r\n\r\n", size)
					b.SetBytes(int64(size))
					measure(b, v, stage, conns, request)
				})
			}
		}
	}
}

// BenchmarkPost is the cost of a request with a body: at a stage whose connections are used again after one, and at one
// whose are not.
func BenchmarkPost(b *testing.B) {
	stage := startStage(b)
	body := strings.Repeat("x", 1<<10)
	request := fmt.Appendf(nil, "POST /size/1024 HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	for _, discards := range []bool{true, false} {
		for _, conns := range []int{1, 16} {
			b.Run(fmt.Sprintf("discards=%t/conns=%d", discards, conns), func(b *testing.B) {
				chain := newChain(b, Config{})
				chain.Set(Tables{All: order(1)}, []Stage{{Name: "a", Socket: stage.socket, DiscardsBodies: discards}})
				measure(b, chain, stage, conns, request)
			})
		}
	}
}

// measure sends b.N requests to a server of the handler, over some connections.
func measure(b *testing.B, h http.Handler, stage *stageProcess, conns int, request []byte) {
	srv := httptest.NewServer(h)
	defer srv.Close()
	clients := dialClients(b, srv.Listener.Addr(), conns)
	load(b, clients, len(clients), request)
	b.ReportAllocs()
	before := cpuTime() + time.Duration(stage.ask(b, "/cpu"))
	b.ResetTimer()
	load(b, clients, b.N, request)
	b.StopTimer()
	used := cpuTime() + time.Duration(stage.ask(b, "/cpu")) - before
	b.ReportMetric(float64(used.Microseconds())/float64(b.N), "cpu-µs/op")
}

// load sends n requests over the clients.
func load(b *testing.B, clients []*benchClient, n int, request []byte) {
	var left atomic.Int64
	left.Store(int64(n))
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if err := c.do(request); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// benchClient is an HTTP client that costs as little as possible.
type benchClient struct {
	net.Conn
	r *bufio.Reader
}

func dialClients(b *testing.B, addr net.Addr, n int) []*benchClient {
	clients := make([]*benchClient, n)
	for i := range clients {
		c, err := net.Dial(addr.Network(), addr.String())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { c.Close() })
		clients[i] = &benchClient{c, bufio.NewReaderSize(c, 64<<10)}
	}
	return clients
}

// do sends a request and reads a response that has a Content-Length.
func (c *benchClient) do(request []byte) error {
	if _, err := c.Write(request); err != nil {
		return err
	}
	length := -1
	for first := true; ; first = false {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if first && !bytes.HasPrefix(line, []byte("HTTP/1.1 200")) {
			return fmt.Errorf("response: %s", line)
		}
		if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(v)))
		}
		if len(line) == 2 {
			break
		}
	}
	if length < 0 {
		return fmt.Errorf("response without a length")
	}
	_, err := c.r.Discard(length)
	return err
}

// BenchmarkEvents is one event of a stream after the other, as fast as they go.
func BenchmarkEvents(b *testing.B) {
	stage := startStage(b)
	for _, v := range vias(b, stage.socket) {
		b.Run("via="+v.name, func(b *testing.B) {
			srv := httptest.NewServer(v)
			defer srv.Close()
			before := cpuTime() + time.Duration(stage.ask(b, "/cpu"))
			readEvents(b, srv, fmt.Sprintf("/events/%d", b.N))
			used := cpuTime() + time.Duration(stage.ask(b, "/cpu")) - before
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(float64(used.Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
}

// BenchmarkEventLatency is the time from the stage's write to the client's read, of
// events that come one by one.
func BenchmarkEventLatency(b *testing.B) {
	stage := startStage(b)
	for _, v := range vias(b, stage.socket) {
		b.Run("via="+v.name, func(b *testing.B) {
			srv := httptest.NewServer(v)
			defer srv.Close()
			before := cpuTime() + time.Duration(stage.ask(b, "/cpu"))
			sum := readEvents(b, srv, fmt.Sprintf("/events/%d?pause=200us", b.N))
			used := cpuTime() + time.Duration(stage.ask(b, "/cpu")) - before
			b.ReportMetric(float64(used.Microseconds())/float64(b.N), "cpu-µs/op")
			b.ReportMetric(float64(sum.Nanoseconds())/float64(b.N)/1e3, "latency-µs")
		})
	}
}

// readEvents reads a stream and returns the sum of the events' ages.
func readEvents(b *testing.B, srv *httptest.Server, path string) (sum time.Duration) {
	resp, err := srv.Client().Get(srv.URL + path)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	r := bufio.NewReader(resp.Body)
	for range b.N {
		line, err := r.ReadSlice('\n')
		if err != nil {
			b.Fatal(err)
		}
		at, _ := strconv.ParseInt(string(line[:19]), 10, 64)
		sum += time.Since(time.Unix(0, at))
	}
	return sum
}

// BenchmarkIdleWatches is what an idle watch costs host and stage in memory. The
// host's figure has the server's own part and the client's connection in it: see
// via=direct, where there is nothing else.
func BenchmarkIdleWatches(b *testing.B) {
	const watches = 5000
	for _, name := range []string{"direct", "relay", "proxy"} {
		b.Run(fmt.Sprintf("watches=%d/via=%s", watches, name), func(b *testing.B) {
			for range b.N {
				stage := startStage(b)
				for _, v := range vias(b, stage.socket) {
					if v.name == name {
						host, inStage := idleWatches(b, v, stage, watches)
						b.ReportMetric(host/1024, "host-KiB/watch")
						b.ReportMetric(inStage/1024, "stage-KiB/watch")
					}
				}
			}
		})
	}
}

func idleWatches(b *testing.B, v via, stage *stageProcess, n int) (host, inStage float64) {
	srv := httptest.NewServer(v)
	defer srv.Close()
	before, stageBefore := residentMemory(), stage.ask(b, "/memory")
	var open []io.Closer
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for range n {
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		open = append(open, c)
		if _, err := io.WriteString(c, "GET /watch HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadAtLeast(c, make([]byte, 4096), len("HTTP/1.1 200 OK")); err != nil {
			b.Fatal(err)
		}
	}
	host = float64(residentMemory()-before) / float64(n)
	return host, float64(stage.ask(b, "/memory")-stageBefore) / float64(n)
}
