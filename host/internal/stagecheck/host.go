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
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/catena-dev/catena/host/internal/auditheader"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/internal/requestinfo"
	"github.com/catena-dev/catena/sdk/claim"
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
	nextSocket, front := filepath.Join(st.dir, "next.sock"), filepath.Join(st.dir, "front.sock")
	st.next.socket = nextSocket
	st.headers = &headers{stage: st.name}
	st.chain = relay.NewChain(relay.Config{Propagator: st.headers, Error: writeError})
	st.closers = append(st.closers, func() { st.chain.Set(relay.Tables{All: claim.NewTable()}, nil) })
	host := &relay.HostHandler{
		Chain: st.chain,
		Caller: func(_ *http.Request, token string) (relay.Caller, bool) {
			g := st.granted()
			return relay.Caller{Stage: st.name, Socket: st.listener.Path(), Delegates: []string{nextName},
				MayRewrite: g.Rewrite, MayDelegate: g.Delegates, Trusted: g.Trusted()}, token == st.token
		},
		Authorize: func(_ http.ResponseWriter, r *http.Request, _ string) (*http.Request, bool) { return r, true },
		Refuse: func(w http.ResponseWriter, _ *http.Request, r relay.Refusal) {
			http.Error(w, fmt.Sprintf("the stage does not declare to need %s, and may not %s", r.Grant, r.Reason), http.StatusForbidden)
		},
		API:  http.HandlerFunc(serveAPI),
		Lead: serveLead,
		As:   func(r *http.Request, _ relay.Caller) *http.Request { return r },
	}
	err := errors.Join(
		st.listen(nextSocket, st.next),
		st.listen(front, st.chain),
		st.listen(st.hostSocket(), st.next.countCalls(host)))
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

// serveLead has the stage lead for as long as it wants: there is no other process of it.
func serveLead(w http.ResponseWriter, r *http.Request, _, _ string) {
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// listen serves HTTP on a Unix socket until the stage is closed.
func (st *stage) listen(path string, handler http.Handler) error {
	ln, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, MaxHeaderBytes: 4 << 20}
	go func() { _ = server.Serve(ln) }()
	st.closers = append(st.closers, func() { _ = server.Close() })
	return nil
}

// headers adds to each request what the host adds, and checks what the stage adds to responses.
type headers struct {
	stage string

	mu        sync.Mutex
	malformed error // the first header that is
}

func (*headers) AppendRequestHeaders(dst []byte, r *http.Request) []byte {
	if info, err := requestinfo.Factory().NewRequestInfo(r); err == nil {
		dst = requestinfo.Append(dst, info)
	}
	dst = append(dst, stagev1.HeaderUser+`: {"name":"stagecheck","groups":["system:authenticated"]}`+"\r\n"...)
	dst = append(dst, stagev1.HeaderReceived+": "...)
	dst = strconv.AppendInt(dst, time.Now().UnixMicro(), 10)
	dst = append(dst, "\r\n"+stagev1.HeaderClient+": 192.0.2.1:4711\r\n"+stagev1.HeaderAdded+": Audit-Id"...)
	return append(dst, "\r\nAudit-ID: 00000000-0000-4000-8000-000000000000\r\n"+stagev1.HeaderAuditLevel+": RequestResponse\r\n"...)
}

func (*headers) HostHeader(string) bool { return false }

func (*headers) HostResponseHeader(string) bool { return false }

func (h *headers) ResponseHeader(r *http.Request, from relay.Sender, key, value string) {
	if from.Stage != h.stage {
		return
	}
	var err error
	switch key {
	case stagev1.HeaderAudit:
		var part auditheader.Part
		if part, err = auditheader.Parse(value); err == nil {
			if _, dropped := part.Restrict(from.Stage, from.Serves, from.Kubernetes); len(dropped) > 0 {
				err = fmt.Errorf("the host leaves out %q: of a request that it does not serve itself, a stage may add annotations below %s/ only", dropped, auditheader.OwnDomain(from.Stage))
			}
		}
	case stagev1.HeaderLatency:
		err = checkLatencies(value)
	}
	if err == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.malformed == nil {
		h.malformed = want("a well-formed "+key+" in the response to "+r.Method+" "+r.URL.Path, "%.200q: %v", value, err)
	}
}

// checkLatencies checks the value of X-Catena-Latency.
func checkLatencies(value string) error {
	for item := range strings.SplitSeq(value, ",") {
		name, number, _ := strings.Cut(strings.TrimSpace(item), "=")
		if n, err := strconv.ParseInt(number, 10, 64); name == "" || err != nil || n < 0 {
			return errors.New("not NAME=NANOSECONDS, separated by commas")
		}
	}
	return nil
}

// checkAudit looks at all responses so far.
func checkAudit(ctx context.Context, s *suite) error {
	st, _, err := s.path(ctx)
	if err != nil {
		return err
	}
	st.headers.mu.Lock()
	defer st.headers.mu.Unlock()
	return st.headers.malformed
}

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

// hostPaths are paths that the host serves itself, in front of the chain, with what is below them but for the first: no stage gets them.
var hostPaths = []string{"/", "/version", "/healthz", "/livez", "/readyz", "/metrics", "/debug/pprof", "/debug/catena"}

// downstream is the stage after the one that is checked. It responds to everything but what a host serves
// itself, and remembers what has come.
type downstream struct {
	socket string
	// through is where it serves what the checks of calls need; empty if they are not made.
	through string
	streams atomic.Int64
	calls   atomic.Int64 // that have come to the host

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
	host   string
	two    []string
}

func (b *downstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutPrefix(r.URL.Path, b.through)
	if ok && b.through != "" && slices.Contains(throughEndpoints, name) {
		b.serveThrough(w, r, name)
		return
	}
	digest := sha256.New()
	n, err := io.Copy(digest, r.Body)
	got := seen{Method: r.Method, Target: r.RequestURI, Length: n, err: err, host: r.Host, two: r.Header[headerTwo]}
	digest.Sum(got.Sum[:0])
	if id := r.Header.Get(headerID); id != "" {
		b.mu.Lock()
		b.seen[id] = got
		b.mu.Unlock()
	}
	if slices.ContainsFunc(hostPaths, func(own string) bool { return r.URL.Path == own || strings.HasPrefix(r.URL.Path, own+"/") }) {
		http.NotFound(w, r)
		return
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
