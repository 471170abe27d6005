package hostile

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/test/internal/cluster"
)

const (
	// holders is how many connections hold what they can. They have sendTime to send it, and hold it for holdTime.
	holders            = 1500
	sendTime, holdTime = 6 * time.Second, 3 * time.Second
	// mostMemory is how much the host may take meanwhile, in MiB, with the garbage that comes with it: without a
	// bound it takes 2,500.
	mostMemory = 600
)

// holder makes the host hold what it can on one connection.
type holder struct {
	address string
	config  *tls.Config
	known   bool // it first makes a request, to which the response has begun when it holds
	hold    func(*holderConn)
}

type holderConn struct {
	*http2.Framer
	next uint32
}

// request begins one, of which the head is complete or not.
func (c *holderConn) request(method, path string, complete bool) (stream uint32) {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", method}, {":scheme", "https"}, {":authority", "x"}, {":path", path}} {
		_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	c.next += 2
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: c.next, BlockFragment: block.Bytes(), EndStream: method == "GET", EndHeaders: complete})
	return c.next
}

// more sends more of a head that is not complete.
func (c *holderConn) more(bytes int) {
	part := strings.Repeat("x", 16_000)
	for n := 0; n < bytes; n += len(part) {
		var block strings.Builder
		_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: fmt.Sprint("x-", n), Value: part, Sensitive: true})
		if c.WriteContinuation(c.next, false, []byte(block.String())) != nil {
			return
		}
	}
}

// fields sends more of a head that is not complete: fields of one byte each, which both sides know (RFC 7541, A:
// accept-language).
func (c *holderConn) fields(n int) {
	_ = c.WriteContinuation(c.next, false, bytes.Repeat([]byte{0x80 | 17}, min(n, 16_000)))
	if n > 16_000 {
		c.fields(n - 16_000)
	}
}

// run opens a connection and holds what it can on it. It is not opened again when it is closed.
func (h holder) run(ctx context.Context) {
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: patience}, Config: h.config}
	conn, err := dialer.DialContext(ctx, "tcp", h.address)
	if err != nil {
		return
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return
	}
	c := &holderConn{Framer: http2.NewFramer(conn, conn), next: ^uint32(0)}
	if c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}) != nil {
		return
	}
	if h.known {
		c.request("GET", "/version", true)
		for {
			frame, err := c.ReadFrame()
			if err != nil {
				return
			}
			if frame.Header().Type == http2.FrameHeaders {
				break
			}
		}
	}
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	h.hold(c)
}

// Clients that hold what they can, without credentials or as a user, on many connections make the host hold no more
// than it has room for, and others hardly wait.
func TestHolders(t *testing.T) { // not in parallel, since it measures
	long := strings.Repeat("x", 12_000)
	fields := func(c *holderConn) {
		c.request("GET", "/healthz?verbose&exclude="+long, true)
		c.request("GET", "/version", false)
		c.fields(25_000)
	}
	for _, test := range []struct {
		name  string
		known bool
		hold  func(*holderConn)
	}{
		{"heads beside a request", false, func(c *holderConn) {
			c.request("GET", "/healthz?verbose&exclude="+long, true)
			c.request("GET", "/version", false)
			c.more(950_000)
		}},
		{"requests and bodies without a window", false, func(c *holderConn) {
			for range 90 {
				stream := c.request("POST", "/healthz?verbose&exclude="+long, true)
				if c.WriteData(stream, false, make([]byte, 16<<10)) != nil {
					return
				}
			}
		}},
		{"fields beside a request", false, fields},
		{"fields of a user", true, fields},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := cluster.StartCatena(t.Context(), cluster.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := c.Stop(t.Failed()); err != nil {
					t.Error(err)
				}
			})
			config := c.Config(cluster.Admin)
			address, client := http2Client(t, config, test.known)
			idle := latency(t, config, 3*time.Second)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for range holders {
				go holder{address, client, test.known, test.hold}.run(ctx)
			}
			sending := latency(t, config, sendTime)
			busy := latency(t, config, holdTime)
			now, most := residentOf(t, c.Process().PID())
			t.Logf("95 of 100 requests take %s, %s while they send, and %s before; the host has %d MiB, and had %d", busy, sending, idle, now, most)
			if busy > 3*max(idle, 10*time.Millisecond) {
				t.Errorf("95 of 100 requests of others take %s, and %s before", busy, idle)
			}
			if most > mostMemory {
				t.Errorf("the host has had %d MiB", most)
			}
		})
	}
}

// http2Client returns the address of a server, and how to connect to it over HTTP/2: as its user, or without
// credentials.
func http2Client(t *testing.T, config *rest.Config, known bool) (address string, client *tls.Config) {
	t.Helper()
	server, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	if client, err = rest.TLSConfigFor(config); err != nil {
		t.Fatal(err)
	}
	client.NextProtos = []string{"h2"}
	if !known {
		client.Certificates, client.GetClientCertificate = nil, nil
	}
	return server.Host, client
}

// latency is the 95th percentile of requests of another client.
func latency(t *testing.T, config *rest.Config, d time.Duration) time.Duration {
	t.Helper()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	var took []time.Duration
	for deadline := time.Now().Add(d); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		begin := time.Now()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+"/api/v1/namespaces/default", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Error(err)
			continue
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("status %d", resp.StatusCode)
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	return took[len(took)*95/100]
}

// residentOf is the memory of a process, and the most that it has had, in MiB.
func residentOf(t *testing.T, pid int) (now, most int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	of := func(key string) int {
		_, rest, _ := strings.Cut(string(text), key+":")
		kib, err := strconv.Atoi(strings.Fields(rest)[0])
		if err != nil {
			t.Fatal(err)
		}
		return kib >> 10
	}
	return of("VmRSS"), of("VmHWM")
}
