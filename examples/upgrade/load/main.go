// Load uses an API server as clients do, and counts what they notice: each of some clients creates, reads, changes and deletes
// ConfigMaps, and one watches them. It prints a line per second, and a summary at the end, which is Ctrl-C or -for. The exit code is 1
// if a request has failed or an event is missing.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "data/admin.kubeconfig", "`file` with the address of the server and credentials")
	clients := flag.Int("clients", 4, "how many clients make requests")
	length := flag.Duration("for", 24*time.Hour, "when to end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *length)
	defer cancel()
	if err := run(ctx, *kubeconfig, *clients); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

// run makes requests until ctx ends.
func run(ctx context.Context, kubeconfig string, clients int) error {
	l := &load{seen: map[string]bool{}}
	maps, err := l.connect(kubeconfig)
	if err != nil {
		return err
	}
	began, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	watching, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	go l.watch(watching, maps, began.ResourceVersion)
	go l.report(watching)
	var all sync.WaitGroup
	for id := range clients {
		all.Go(func() { l.use(ctx, maps, id) })
	}
	all.Wait()
	return l.summary()
}

// load is what the clients have noticed.
type load struct {
	mu       sync.Mutex
	requests int
	failed   int
	longest  time.Duration
	last     time.Duration // the longest since the latest report
	created  int
	seen     map[string]bool // the ConfigMaps whose creation the watch has seen
}

// connect returns a client whose requests are counted: each one, so that no retry hides a failure.
func (l *load) connect(kubeconfig string) (typedcorev1.ConfigMapInterface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // no limit
	config.UserAgent = "upgrade-demo"
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counter{l, next} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return client.CoreV1().ConfigMaps(metav1.NamespaceDefault), nil
}

// counter counts requests. It reads each response but that of a watch to its end, so that one that breaks off counts as failed.
type counter struct {
	load *load
	next http.RoundTripper
}

func (c counter) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	resp, err := c.next.RoundTrip(r)
	if r.URL.Query().Get("watch") != "" && err == nil && resp.StatusCode == http.StatusOK {
		return resp, err
	}
	if err == nil {
		var body []byte
		body, err = io.ReadAll(resp.Body)
		resp.Body.Close()
		resp.Body = io.NopCloser(bytes.NewReader(body))
		if err == nil && resp.StatusCode >= 300 {
			err = fmt.Errorf("%s: %.200s", resp.Status, body)
		}
	}
	c.load.request(r, time.Since(began), err)
	if resp != nil {
		return resp, nil // the client looks at the status itself
	}
	return nil, err
}

func (l *load) request(r *http.Request, took time.Duration, err error) {
	if r.Context().Err() != nil {
		return // the end of the load
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests++
	l.longest, l.last = max(l.longest, took), max(l.last, took)
	if err != nil {
		l.failed++
		fmt.Printf("load: %s %s failed after %s: %v\n", r.Method, r.URL.Path, took.Round(time.Millisecond), err)
	}
}

// use creates, reads, changes and deletes one ConfigMap after the other. Requests that have begun when ctx ends are finished.
func (l *load) use(ctx context.Context, maps typedcorev1.ConfigMapInterface, id int) {
	whole := context.WithoutCancel(ctx)
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("demo-%d-%d-%d", os.Getpid(), id, n)
		patch := fmt.Appendf(nil, `{"data":{"n":"%d"}}`, n)
		_, err := maps.Create(whole, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err == nil {
			l.mu.Lock()
			l.created++
			l.mu.Unlock()
			_, err = maps.Patch(whole, name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		if err == nil {
			_, err = maps.Get(whole, name, metav1.GetOptions{})
		}
		if err == nil {
			_ = maps.Delete(whole, name, metav1.DeleteOptions{})
		}
		time.Sleep(20 * time.Millisecond) // leave the processors to the server: it is on the same machine
	}
}

// watch notes which creations it sees. When the server ends a watch, the next one goes on from the same version, as informers do.
func (l *load) watch(ctx context.Context, maps typedcorev1.ConfigMapInterface, version string) {
	for ctx.Err() == nil {
		w, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
		if err != nil {
			time.Sleep(100 * time.Millisecond) // it has been counted
			continue
		}
		for event := range w.ResultChan() {
			object, ok := event.Object.(metav1.Object)
			if !ok {
				continue
			}
			version = object.GetResourceVersion()
			if event.Type == watch.Added {
				l.mu.Lock()
				l.seen[object.GetName()] = true
				l.mu.Unlock()
			}
		}
	}
}

// report prints a line per second.
func (l *load) report(ctx context.Context) {
	began, tick := time.Now(), time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		l.mu.Lock()
		fmt.Printf("load: %4.0fs  %6d requests, %d failed; longest %4d ms, in this second %4d ms\n",
			time.Since(began).Seconds(), l.requests, l.failed, l.longest.Milliseconds(), l.last.Milliseconds())
		l.last = 0
		l.mu.Unlock()
	}
}

// summary waits for the last events, prints what was counted, and returns an error if a client has noticed anything.
func (l *load) summary() error {
	for deadline := time.Now().Add(10 * time.Second); l.missed() > 0 && time.Now().Before(deadline); {
		time.Sleep(50 * time.Millisecond)
	}
	missed := l.missed()
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Printf("\n%d requests, %d failed, the longest took %d ms; %d objects were created, %d events are missing\n",
		l.requests, l.failed, l.longest.Milliseconds(), l.created, missed)
	if l.failed > 0 || missed > 0 || l.created == 0 {
		return errors.New("clients have noticed something")
	}
	return nil
}

func (l *load) missed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.created - len(l.seen)
}
