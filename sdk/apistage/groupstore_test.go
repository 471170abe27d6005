package apistage_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/catena-dev/catena/sdk/apistage/apitest"
	"github.com/catena-dev/catena/sdk/stagev1"
	"github.com/catena-dev/catena/sdk/stagev1/header"
)

// Objects are under the stage's own prefix, as JSON of the stored version, and another
// process of the stage finds them there with their resourceVersions.
func TestStore(t *testing.T) {
	t.Parallel()
	etcd := apitest.Store(t)
	first := serveGroup(t, widgets(), etcd)
	made, err := first.client.Create(t.Context(), widget(t, "kept", "spec: {replicas: 1}"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	const key = "/registry/stages/widgets/widgets.test/widgets/default/kept"
	found, err := client.Get(t.Context(), key)
	if err != nil || len(found.Kvs) != 1 {
		t.Fatalf("%s: %v (%v)", key, found, err)
	}
	if text := string(found.Kvs[0].Value); !strings.HasPrefix(text, `{"kind":"Widget","apiVersion":"widgets.test/v1"`) {
		t.Errorf("stored is %s", text)
	}
	second := serveGroup(t, widgets(), etcd)
	again, err := second.client.Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil || again.GetResourceVersion() != made.GetResourceVersion() {
		t.Errorf("another process has %v (%v)", again, err)
	}
	list, err := first.client.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// A watch of the first process goes on in the second.
	w, err := second.client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if _, err := first.client.Create(t.Context(), widget(t, "seen", "spec: {replicas: 1}"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if event := <-w.ResultChan(); event.Type != "ADDED" {
		t.Errorf("event is %v", event)
	}
}

// hostWatch begins a watch as the host does, and returns what the head says of it, and what the trailer says in the end.
func hostWatch(t *testing.T, s *served, query string, asks bool) (head string, ended <-chan string) {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.Socket())
	}}
	t.Cleanup(transport.CloseIdleConnections)
	url := "http://stage/apis/widgets.test/v1/namespaces/default/widgets?watch=1&" + query
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if asks {
		r.Header.Set(stagev1.HeaderWatch, "true")
	}
	resp, err := transport.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v, %v", query, resp, err)
	}
	trailer := make(chan string, 1)
	go func() {
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			trailer <- err.Error()
			return
		}
		trailer <- resp.Trailer.Get(stagev1.HeaderWatch)
	}()
	return resp.Header.Get(stagev1.HeaderWatch), trailer
}

// A watch of what is in etcd promises the host, if that asks, that another process can go on with it, and says when that is wanted: not
// when the time is over that the client wanted.
func TestWatchesPromise(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"cached": nil, "uncached": {"watch-cache=false"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveGroup(t, widgets(), apitest.Store(t), flags...)
			list, err := s.client.List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			from := "resourceVersion=" + list.GetResourceVersion()
			if head, _ := hostWatch(t, s, from, false); head != "" {
				t.Errorf("nobody has asked: %q", head)
			}
			head, timedOut := hostWatch(t, s, from+"&timeoutSeconds=1", true)
			if head != header.WatchResumable {
				t.Errorf("the head has %q", head)
			}
			if trailer := <-timedOut; trailer != "" {
				t.Errorf("the time is over: %q", trailer)
			}
			_, drained := hostWatch(t, s, from, true)
			s.Drain(t, deadline)
			if trailer := <-drained; trailer != header.WatchDraining {
				t.Errorf("the stage has drained: %q", trailer)
			}
		})
	}
}
