package fuzz

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/catena-dev/catena/test/internal/cluster"
)

const (
	// others is how long a request that is none of the stages' at random may take: no longer than the server gives each.
	others = time.Minute
	// forgetting is how long the host may take to forget stages that are removed.
	forgetting = 2 * time.Minute
	// memory is what the host and Kubernetes' stages may use together.
	memory = 2 << 30
	// ownLog and ownLogPerSecond are how much the host itself may log, in bytes.
	ownLog, ownLogPerSecond = 1 << 20, 64 << 10
)

// TestRandomStages has stages do everything at random that they should not.
func TestRandomStages(t *testing.T) {
	if *duration == 0 {
		t.Skip("-fuzz.for=0")
	}
	s := newSite(t)
	t.Cleanup(func() {
		if !s.ended() {
			s.stops(t)
		}
		if t.Failed() {
			s.keep(t)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	log, err := follow(s.Process().Log)
	if err != nil {
		t.Fatal(err)
	}
	before, err := s.holdings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	p := s.probe(t)
	largest := s.run(t, log, began.Add(*duration))
	p.stop()
	t.Logf("%s, %d processes; memory of the host at most %d MiB, with Kubernetes' stages %d MiB\n%s", time.Since(began).Round(time.Second), s.processes(), s.highWater(t)>>20, largest>>20, p)
	if !s.ended() {
		s.forgets(t, before)
	}
	if !s.ended() {
		s.comesBack(t)
		s.stops(t)
	}
	checkLog(t, log, time.Since(began))
}

// ended reports whether the host has ended.
func (s *site) ended() bool {
	select {
	case <-s.Process().Done:
		return true
	default:
		return false
	}
}

// run changes the chain at random and sends requests to its stages, until it is time. It returns the most memory that was in use.
func (s *site) run(t *testing.T, log *follower, end time.Time) int64 {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var pending sync.WaitGroup
	defer pending.Wait()
	defer cancel()
	for n := range uint64(clients) {
		r := rand.New(rand.NewPCG(s.seed, n+1))
		pending.Go(func() { s.client(ctx, r) })
	}
	pending.Go(func() { s.operate(ctx) })
	var largest int64
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for ; time.Now().Before(end) && !t.Failed(); <-tick.C {
		for _, wrong := range log.next() {
			t.Errorf("the log has %s", wrong)
		}
		if s.ended() {
			t.Errorf("the host has ended:\n%s", cluster.Tail(s.Process().Log, 50))
		}
		largest = max(largest, s.memory())
		if largest > memory {
			t.Errorf("the host and Kubernetes' stages have %d MiB", largest>>20)
		}
	}
	return largest
}

// memory is what the host and Kubernetes' stages have, in bytes.
func (s *site) memory() int64 {
	sum := statusOf(s.Process().PID(), "VmRSS:")
	for pid, name := range s.StageProcesses() {
		if !slices.Contains(stages, name) {
			sum += statusOf(pid, "RssAnon:") // they share the text
		}
	}
	return sum
}

func (s *site) highWater(t *testing.T) int64 {
	t.Helper()
	return statusOf(s.Process().PID(), "VmHWM:")
}

// statusOf returns a size from the status of a process, in bytes.
func statusOf(pid int, key string) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == key {
			kib, _ := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// clients is how many clients send requests to the stages at random.
const clients = 6

// client sends requests to the stages at random, and does not mind what comes of them.
func (s *site) client(ctx context.Context, random *rand.Rand) {
	r := &source{Rand: random, choices: newChoices(0, "", "", "", nil)}
	for ctx.Err() == nil {
		r.pause(ctx, 100*time.Millisecond)
		s.ask(ctx, r)
	}
}

// pause waits for some time.
func (s *source) pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(s.upTo(d)):
	}
}

func (s *site) ask(ctx context.Context, r *source) {
	dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}}
	ctx, cancel := context.WithTimeout(ctx, time.Second+r.upTo(10*time.Second))
	defer cancel()
	c, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(s.URL, "https://"))
	if err != nil {
		return
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	body := r.bytes(r.size(1 << 20))
	path := "/fuzz/" + stages[r.IntN(len(stages))] + "/x"
	user := []string{cluster.Admin, cluster.Admin, cluster.Alice}[r.IntN(3)]
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s-token\r\n", []string{"GET", "GET", "HEAD", "POST", "PUT", "OPTIONS", "DELETE"}[r.IntN(7)], path, user)
	switch r.IntN(6) {
	case 0:
		fmt.Fprintf(&b, "Connection: Upgrade\r\nUpgrade: x\r\n\r\n%s", body)
	case 1:
		fmt.Fprintf(&b, "Expect: 100-continue\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	case 2:
		b.WriteString("Trailer: X-A\r\nTransfer-Encoding: chunked\r\n\r\n")
		if len(body) > 0 {
			fmt.Fprintf(&b, "%x\r\n%s\r\n", len(body), body)
		}
		b.WriteString("0\r\nX-A: b\r\n\r\n")
	case 3:
		fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
	default:
		b.WriteString("\r\n")
	}
	request := b.Bytes()
	if r.one(10) {
		request = request[:r.IntN(len(request))]
	}
	go func() { _, _ = c.Write(request) }()
	_, _ = io.CopyN(io.Discard, c, int64(r.IntN(1<<22)))
}

// operate does what operators do, at random. Commands about such stages may fail.
func (s *site) operate(ctx context.Context) {
	r := &source{Rand: s.random, choices: newChoices(0, "", "", "", nil)}
	pages := []string{
		"/metrics", "/healthz?verbose", "/readyz?verbose", "/", "/apis", "/openapi/v2", "/openapi/v3", "/debug/catena/chain", "/debug/catena/stages/STAGE/pprof/heap", "/debug/catena/stages/STAGE/statusz",
		"/debug/catena/stages/STAGE/pprof/goroutine?debug=2", "/debug/catena/stages/STAGE/flagz", "/readyz/STAGE/check",
	}
	for ctx.Err() == nil {
		s.addAll(ctx)
		r.pause(ctx, 2*time.Second)
		stage := stages[r.IntN(len(stages))]
		limited, cancel := context.WithTimeout(ctx, 30*time.Second)
		switch r.IntN(10) {
		case 0:
			_, _ = s.Command(limited, "swap", stage)
		case 1:
			_ = s.apply(limited, func(c *chain) {
				switch r.IntN(4) {
				case 0:
					delete(c.with, stage)
				case 1:
					c.standby[stage] = !c.standby[stage]
				default:
					c.with[stage]++ // another configuration
				}
			})
		case 2:
			for pid, name := range s.StageProcesses() {
				if name == stage {
					_ = syscall.Kill(pid, []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGTERM}[r.IntN(3)])
				}
			}
		case 3:
			_, _ = s.Command(limited, "status")
		case 4:
			_, _ = s.Command(limited, "logs", "level", stage, "debug")
		default:
			_, _, _ = s.get(limited, nil, strings.ReplaceAll(pages[r.IntN(len(pages))], "STAGE", stage))
		}
		cancel()
	}
}

// addAll tries to add the stages that are not there: a change takes effect only if the stage comes up.
func (s *site) addAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, name := range stages {
		if _, ok := s.chain.with[name]; !ok {
			_ = s.apply(ctx, func(c *chain) { c.with[name] = 0 })
		}
	}
}

// get makes a request as an administrator. Without a transport it takes that of the site, which has connections that stay.
func (s *site) get(ctx context.Context, transport http.RoundTripper, path string) (int, []byte, error) {
	if transport == nil {
		transport = s.transport
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+s.Config(cluster.Admin).BearerToken)
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

// probes are requests that have nothing to do with the stages at random.
type probes struct {
	cancel  context.CancelFunc
	pending sync.WaitGroup

	mu   sync.Mutex
	took map[string][]time.Duration
}

// probe makes such requests until it is stopped. One that fails or takes too long fails the test.
func (s *site) probe(t *testing.T) *probes {
	ctx, cancel := context.WithCancel(t.Context())
	p := &probes{cancel: cancel, took: map[string][]time.Duration{}}
	for _, path := range []string{"/livez", "/api/v1/namespaces/default", "/apis/apps/v1/namespaces/default/deployments"} {
		p.pending.Go(func() {
			for tick := time.NewTicker(100 * time.Millisecond); ctx.Err() == nil; {
				if err := p.once(ctx, s, nil, path); err != nil && ctx.Err() == nil {
					t.Errorf("%s %v", time.Now().UTC().Format("15:04:05.000"), err)
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	p.pending.Go(func() {
		for ctx.Err() == nil { // with connections of its own
			own := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
			if err := p.once(ctx, s, own, "/version"); err != nil && ctx.Err() == nil {
				t.Errorf("%s %v", time.Now().UTC().Format("15:04:05.000"), err)
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	})
	return p
}

func (p *probes) once(ctx context.Context, s *site, transport http.RoundTripper, path string) error {
	ctx, cancel := context.WithTimeout(ctx, others)
	defer cancel()
	began := time.Now()
	code, body, err := s.get(ctx, transport, path)
	took := time.Since(began)
	p.mu.Lock()
	p.took[path] = append(p.took[path], took)
	p.mu.Unlock()
	switch {
	case err != nil:
		return fmt.Errorf("%s after %s: %w", path, took.Round(time.Millisecond), err)
	case code != http.StatusOK && !(path == "/livez" && onlyRandomFail(body)):
		return fmt.Errorf("%s after %s: %d %.500s", path, took.Round(time.Millisecond), code, body)
	}
	return nil
}

// onlyRandomFail reports whether all checks that fail are of stages at random: these are part of /livez.
func onlyRandomFail(body []byte) bool {
	failed := 0
	for line := range strings.Lines(string(body)) {
		if name, ok := strings.CutPrefix(line, "[-]"); ok {
			failed++
			if !strings.HasPrefix(name, "random-") {
				return false
			}
		}
	}
	return failed > 0
}

func (p *probes) stop() {
	p.cancel()
	p.pending.Wait()
}

// String is the distribution of the times.
func (p *probes) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := fmt.Sprintf("%-46s %7s %8s %8s %8s %8s\n", "request", "count", "median", "90 %", "99 %", "longest")
	for _, path := range slices.Sorted(maps.Keys(p.took)) {
		all := slices.Sorted(slices.Values(p.took[path]))
		at := func(share int) time.Duration { return all[min(len(all)-1, len(all)*share/100)].Round(time.Millisecond) }
		out += fmt.Sprintf("%-46s %7d %8s %8s %8s %8s\n", path, len(all), at(50), at(90), at(99), at(100))
	}
	return out
}

// comesBack adds the stages at random again, and returns when the first of their processes runs.
func (s *site) comesBack(t *testing.T) {
	already := s.processes()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s.addAll(ctx)
	for s.processes() == already && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
}

// stops ends the host, with all of its processes.
func (s *site) stops(t *testing.T) {
	t.Helper()
	children := cluster.Children(s.Process().PID())
	began := time.Now()
	err := s.Process().Stop()
	if err != nil && !(s.Process().ExitCode() == 1 && strings.HasPrefix(lastError(cluster.Tail(s.Process().Log, 2*len(stages))), "catena: pre-shutdown hook ")) {
		t.Errorf("%v\n%s", err, cluster.Tail(s.Process().Log, 20))
	}
	t.Logf("the host has ended %s after SIGTERM", time.Since(began).Round(time.Millisecond))
	for end := time.Now().Add(others); len(children) > 0; time.Sleep(10 * time.Millisecond) {
		maps.DeleteFunc(children, func(pid int, _ string) bool {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			return len(text) == 0
		})
		if time.Now().After(end) {
			t.Errorf("outlive the host: %v", children)
			for pid := range children {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			return
		}
	}
}

// lastError returns what a log ends with: a line, and those below it that are indented. As with kube-apiserver, hooks that fail are the end's status.
func lastError(log string) string {
	lines := strings.Split(strings.TrimRight(log, "\n"), "\n")
	last := len(lines) - 1
	for last > 0 && strings.HasPrefix(lines[last], " ") {
		last--
	}
	return strings.Join(lines[last:], "\n")
}

func TestLastError(t *testing.T) {
	t.Parallel()
	for log, want := range map[string]string{
		"":                                      "",
		"a line\ncatena: one\n":                 "catena: one",
		"a line\ncatena: one\n    another\n":    "catena: one\n    another",
		"    a line\n    of two, of which one ": "    a line\n    of two, of which one ",
	} {
		if got := lastError(log); got != want {
			t.Errorf("of %q: %q", log, got)
		}
	}
}

// checkLog checks the rest of the log of a host, and its size.
func checkLog(t *testing.T, log *follower, took time.Duration) {
	t.Helper()
	for _, wrong := range log.next() {
		t.Errorf("the log has %s", wrong)
	}
	// The limit of a process in host/internal/process/logs.go: a line of 256 bytes may have four times as many when escaped. Two of a
	// stage may run at a time; what a process may write at once does not matter beside the others of its stage, which die too.
	const processes, perSecond, line = 2, 2000, 1 << 10
	seconds := int64(took.Seconds()) + 1
	of := log.bytes - log.own
	t.Logf("the log has %d KiB of the stages at random and %d KiB of others, which are\n%s", of>>10, log.own>>10, log.most(25))
	if limit := processes * int64(len(stages)) * seconds * perSecond * line; of > limit {
		t.Errorf("the log has %d bytes of the stages at random, more than %d", of, limit)
	}
	if limit := ownLog + seconds*ownLogPerSecond; log.own > limit {
		t.Errorf("the log has %d bytes that the stages have not written, more than %d", log.own, limit)
	}
}
