package stagecheck

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/catena-dev/catena/host/internal/chain"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/sdk/stagev1"
)

const (
	nextName = "stagecheck-next"
	// headerID identifies a request in the downstream stage.
	headerID = "X-Stagecheck-Id"
	// headerError marks a response of this package's own relay, not of the stage.
	headerError = "X-Stagecheck-Error"
)

func (st *stage) hostSocket() string { return filepath.Join(st.dir, "host.sock") }

// serve starts the front, the socket that the stage calls, and the downstream stage.
func (st *stage) serve() error {
	st.next = &downstream{seen: map[string]seen{}}
	nextSocket, front := filepath.Join(st.dir, "next.sock"), filepath.Join(st.dir, "front.sock")
	st.next.socket = nextSocket
	st.chain = relay.NewChain(relay.Config{Propagator: propagator{}, Error: writeError})
	st.closers = append(st.closers, func() { st.chain.Set(relay.Tables{All: chain.NewTable(nil)}, nil) })
	host := &relay.HostHandler{
		Chain: st.chain,
		Caller: func(_ *http.Request, token string) (relay.Caller, bool) {
			g := st.granted()
			return relay.Caller{Stage: st.name, Delegates: []string{nextName}, MayRewrite: g.Rewrite, MayDelegate: g.Delegates}, token == st.token
		},
		Authorize: func(_ http.ResponseWriter, r *http.Request, _ string) (*http.Request, bool) { return r, true },
		Refuse: func(w http.ResponseWriter, _ *http.Request, r relay.Refusal) {
			http.Error(w, fmt.Sprintf("the stage does not declare to need %s, and may not %s", r.Grant, r.Reason), http.StatusForbidden)
		},
		API: http.HandlerFunc(serveAPI),
		As:  func(r *http.Request, _ relay.Caller) *http.Request { return r },
	}
	err := errors.Join(
		st.listen(nextSocket, st.next),
		st.listen(front, st.chain),
		st.listen(st.hostSocket(), host))
	st.client = &http.Client{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", front)
			},
			DisableCompression: true, MaxIdleConnsPerHost: 64, ExpectContinueTimeout: time.Hour,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	st.closers = append(st.closers, st.client.CloseIdleConnections)
	return err
}

// listen serves HTTP on a Unix socket until the stage is closed.
func (st *stage) listen(path string, handler http.Handler) error {
	ln, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, MaxHeaderBytes: 8 << 20}
	go func() { _ = server.Serve(ln) }()
	st.closers = append(st.closers, func() { _ = server.Close() })
	return nil
}

// propagator adds what the host adds to each request.
type propagator struct{}

func (propagator) AppendRequestHeaders(dst []byte, _ *http.Request) []byte {
	dst = append(dst, stagev1.HeaderUser+`: {"name":"stagecheck","groups":["system:authenticated"]}`+"\r\n"...)
	dst = append(dst, stagev1.HeaderReceived+": "...)
	dst = strconv.AppendInt(dst, time.Now().UnixMicro(), 10)
	return append(dst, "\r\nAudit-ID: 00000000-0000-4000-8000-000000000000\r\n"...)
}

func (propagator) HostHeader(string) bool { return false }

func (propagator) ResponseHeader(_ *http.Request, _, _, _ string) {}

// writeError responds to a request that has got no response from a stage.
func writeError(w http.ResponseWriter, r *http.Request, e *relay.StageError) {
	w.Header().Set(headerError, fmt.Sprintf("%.400q", e.Error()))
	relay.WriteError(w, r, e)
}

// serveAPI is all of a server that the stage finds when it calls the host.
func serveAPI(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/version" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintln(w, `{"major":"1","minor":"0","gitVersion":"v1.0.0"}`)
}

// downstream is the stage after the one that is checked. It responds to everything, and
// remembers what has come.
type downstream struct {
	socket string

	mu   sync.Mutex
	seen map[string]seen
}

// seen is a request as the downstream stage has got it.
type seen struct {
	Method string            `json:"method"`
	Target string            `json:"target"`
	Length int64             `json:"length"`
	Sum    [sha256.Size]byte `json:"-"`
	err    error
}

func (b *downstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	digest := sha256.New()
	n, err := io.Copy(digest, r.Body)
	got := seen{Method: r.Method, Target: r.RequestURI, Length: n, err: err}
	digest.Sum(got.Sum[:0])
	if id := r.Header.Get(headerID); id != "" {
		b.mu.Lock()
		b.seen[id] = got
		b.mu.Unlock()
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(got)
}

// take returns what has come with an id, and forgets it.
func (b *downstream) take(id string) (seen, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	got, ok := b.seen[id]
	delete(b.seen, id)
	return got, ok
}
