package system

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/catena-dev/catena/test/internal/cluster"
	"github.com/catena-dev/catena/test/internal/kubelet"
)

// The end of a server that 200 clients are using is as gentle as Kubernetes' tests of its
// graceful termination demand, with each of the options that change it.
func TestGracefulTermination(t *testing.T) {
	t.Parallel()
	for _, o := range []termination{
		{retryAfter: false, watchGrace: 0},
		{retryAfter: true, watchGrace: 0},
		{retryAfter: false, watchGrace: 5 * time.Second, goaway: true},
		{retryAfter: true, watchGrace: 5 * time.Second, goaway: true},
	} {
		t.Run(o.String(), func(t *testing.T) {
			t.Parallel()
			o.run(t)
		})
	}
}

// termination is a way to end.
type termination struct {
	retryAfter bool
	watchGrace time.Duration
	goaway     bool
}

func (o termination) String() string {
	return fmt.Sprintf("retry after %t and watch grace %s and goaway %t", o.retryAfter, o.watchGrace, o.goaway)
}

const (
	terminationDelay = 10 * time.Second // in which a busy machine can see it
	shortClients     = 140              // half of them over HTTP/1.1
	slowClients      = 10
	watchers         = 49 // and an exec stream
)

func (o termination) flags() map[string]string {
	flags := map[string]string{
		"shutdown-delay-duration":                 terminationDelay.String(),
		"shutdown-send-retry-after":               fmt.Sprint(o.retryAfter),
		"shutdown-watch-termination-grace-period": o.watchGrace.String(),
	}
	if o.goaway {
		flags["goaway-chance"] = "0.02"
	}
	return flags
}

func (o termination) run(t *testing.T) {
	gate := make(chan struct{})
	release := sync.OnceFunc(func() { close(gate) })
	hook := startThinkingWebhook(t, func() { <-gate })
	t.Cleanup(release) // before the webhook is closed
	c := catena(t, cluster.Options{Flags: o.flags()})
	apply(t, c.Server, hook.configuration())
	exec := startSession(t, c)
	echoes(t, exec, "before the end")

	short := o.startShort(t, c)
	watches := startWatchers(t, c)
	if o.goaway {
		first := shortClients
		eventually(t, "a connection is replaced", func() bool {
			return short.count(func(r visit) bool { return r.dialed }) > first
		})
	}
	slow := startSlow(t, c, hook) // late, since nobody waits for a webhook for long
	if n := short.count(func(r visit) bool { return r.code != http.StatusOK }); n > 0 {
		t.Fatalf("%d requests have failed before the end has begun", n)
	}

	began := time.Now()
	if err := c.Process().Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	o.duringDelay(t, c, exec, began)
	o.afterDelay(t, c, began)
	for path, w := range watches {
		if at := w.endedBefore(began.Add(terminationDelay)); at > 0 {
			t.Errorf("%d watches of %s have ended before the delay was over", at, path)
		}
	}
	release()
	for r := range slow {
		if r.code != http.StatusCreated || r.err != nil {
			t.Errorf("a request in flight got %d: %v", r.code, r.err)
		}
	}
	for path, w := range watches {
		w.wg.Wait()
		if err := errors.Join(w.broken()...); err != nil {
			t.Errorf("watches of %s were broken off: %v", path, err)
		}
	}
	o.ended(t, c, exec)
	short.leave()
	o.judge(t, short, began)
}

// startShort starts the clients with short requests and waits until each has been served.
func (o termination) startShort(t *testing.T, c *cluster.Catena) *crowd {
	t.Helper()
	crowd := newCrowd(t)
	paths := []string{"/api/v1/namespaces/default", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?limit=1",
		"/apis/apiregistration.k8s.io/v1/apiservices/v1.apps", "/version"}
	for i := range shortClients {
		crowd.come(newVisitor(t, c.Server, i%2 == 0), paths[i/2%len(paths)])
	}
	eventually(t, "all clients are served", func() bool {
		return crowd.count(func(r visit) bool { return r.code == http.StatusOK }) >= shortClients
	})
	return crowd
}

// startSlow starts creations that the webhook holds up, and waits until it does.
func startSlow(t *testing.T, c *cluster.Catena, hook *webhook) <-chan visit {
	t.Helper()
	results := make(chan visit, slowClients)
	var wg sync.WaitGroup
	for i := range slowClients {
		v := newVisitor(t, c.Server, i%2 == 0)
		wg.Go(func() {
			body := fmt.Sprintf(`{"metadata": {"name": "slow-%d", "labels": {"slow": "yes"}}}`, i)
			results <- v.visit(context.WithoutCancel(t.Context()), http.MethodPost, "/api/v1/namespaces/default/configmaps", body)
		})
	}
	go func() { wg.Wait(); close(results) }()
	eventually(t, "the slow requests are in flight", func() bool { return hook.asked.Load() >= slowClients },
		func() string { return fmt.Sprint("the webhook was asked ", hook.asked.Load(), " times") })
	return results
}

// duringDelay checks that the server says that it ends, and serves as before.
func (o termination) duringDelay(t *testing.T, c *cluster.Catena, exec *kubelet.Session, began time.Time) {
	t.Helper()
	var ready visit
	eventually(t, "/readyz fails", func() bool {
		ready = newVisitor(t, c.Server, true).visit(t.Context(), http.MethodGet, "/readyz", "")
		return ready.code != http.StatusOK
	})
	if ready.code != http.StatusInternalServerError {
		t.Errorf("/readyz is %d (%v) after %s, want 500 before anything is refused", ready.code, ready.err, ready.ended.Sub(began))
	}
	for _, path := range []string{"/livez", "/api/v1/namespaces/default"} {
		if r := newVisitor(t, c.Server, false).visit(t.Context(), http.MethodGet, path, ""); r.code != http.StatusOK && r.ended.Before(began.Add(terminationDelay)) {
			t.Errorf("during the delay, %s is %d: %v", path, r.code, r.err)
		}
	}
	echoes(t, exec, "during the delay")
}

// afterDelay waits for the end of the delay, while requests are still in flight, and
// checks how others are refused.
func (o termination) afterDelay(t *testing.T, c *cluster.Catena, began time.Time) {
	t.Helper()
	for _, http2 := range []bool{false, true} {
		var r visit
		eventually(t, "new requests are refused", func() bool {
			r = newVisitor(t, c.Server, http2).visit(t.Context(), http.MethodGet, "/api/v1/namespaces/default", "")
			return r.code != http.StatusOK
		})
		if since := r.ended.Sub(began); since < terminationDelay {
			t.Errorf("a request is refused after %s", since)
		}
		switch {
		case !o.retryAfter:
			if !r.refused(false) {
				t.Errorf("HTTP/2 %t: a new connection gets %d, %v; want it refused", http2, r.code, r.err)
			}
		case r.code != http.StatusTooManyRequests || r.header.Get("Retry-After") == "" || r.closes == http2:
			t.Errorf("HTTP/2 %t: a new request gets %d %v, %v; want 429 with Retry-After, and the connection closed", http2, r.code, r.header, r.err)
		}
	}
}

// ended checks that nothing is left when all requests have ended.
func (o termination) ended(t *testing.T, c *cluster.Catena, exec *kubelet.Session) {
	t.Helper()
	eventually(t, "the host ends", func() bool {
		select {
		case <-c.Process().Done:
			return true
		default:
			return false
		}
	})
	select {
	case <-exec.Ended():
	case <-time.After(patience):
		t.Error("the exec stream does not end with the host")
	}
	if left := processesOf(c.DataDir()); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	o.inOrder(t, string(read(c.Process().Log)))
	// The one who stops a server finds it running.
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	list := names(t, do(t, c.Config(cluster.Admin), http.MethodGet, "/api/v1/namespaces/default/configmaps", "").body)
	if n := strings.Count(strings.Join(list, " "), "slow-"); n != slowClients {
		t.Errorf("%d of %d slow requests were executed", n, slowClients)
	}
}

// inOrder checks the order of the lifecycle signals in the log of a host.
func (o termination) inOrder(t *testing.T, log string) {
	t.Helper()
	var came []string
	for line := range strings.Lines(log) {
		if _, signal, ok := strings.Cut(line, "lifecycle signal: signal="); ok {
			name, _, _ := strings.Cut(signal, " ")
			came = append(came, name)
		}
	}
	last := []string{"HTTPServerStoppedListening", "InFlightRequestsDrained"}
	if o.retryAfter {
		slices.Reverse(last)
	}
	begin := slices.Index(came, "ShutdownInitiated")
	want := append([]string{"NotAcceptingNewRequest"}, last...)
	if begin < 0 || len(came) != begin+6 || !slices.Equal(came[begin+3:], want) {
		t.Errorf("the signals were %q, want %q at the end", came, want)
	}
}

// judge checks that no request was refused before the time at which refusals may begin.
func (o termination) judge(t *testing.T, short *crowd, began time.Time) {
	t.Helper()
	served := short.count(func(r visit) bool { return r.code == http.StatusOK && r.err == nil })
	refused := short.count(func(r visit) bool { return r.refused(o.retryAfter) })
	t.Logf("%d requests were served, %d refused", served, refused)
	shown := 0
	for _, r := range short.visits {
		ok := r.code == http.StatusOK && r.err == nil
		if !ok && (!r.refused(o.retryAfter) || r.ended.Before(began.Add(terminationDelay))) && shown < 5 {
			shown++
			t.Errorf("%s after the signal, a request of %s got %d: %v", r.ended.Sub(began), r.ended.Sub(r.begun), r.code, r.err)
		}
	}
}
