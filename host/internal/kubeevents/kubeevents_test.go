package kubeevents

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// server keeps what it is sent, and responds with what was created, or with an error.
type server struct {
	broken bool

	mu      sync.Mutex
	created []corev1.Event
	patched []string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	var event corev1.Event
	if r.Method == http.MethodPost {
		_ = json.Unmarshal(body, &event)
		s.created = append(s.created, event)
	} else {
		s.patched = append(s.patched, r.URL.Path+" "+string(body))
		event = s.created[0]
		_ = json.Unmarshal(body, &event)
	}
	if s.broken {
		http.Error(w, "no", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(event)
}

func (s *server) requests() (created, patched int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.created), len(s.patched)
}

func newRecorder(t *testing.T, s *server) *Recorder {
	t.Helper()
	listening := httptest.NewServer(s)
	t.Cleanup(listening.Close)
	client, err := typedcorev1.NewForConfig(&rest.Config{Host: listening.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	return New(client, "machine")
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// Equal Events are one, with a count, and no storm of them is written.
func TestStorm(t *testing.T) {
	t.Parallel()
	s := &server{}
	r := newRecorder(t, s)
	go r.Run(t.Context(), func() bool { return true })
	const storm = 40 // fits into the queue
	for range storm {
		r.Record(Event{Stage: "core", Warning: true, Reason: "StageFailed", Message: "boom", At: time.Now()})
	}
	r.Record(Event{Reason: "ConfigurationReloaded", Message: "fine", At: time.Now()})
	eventually(t, "the Event after the storm", func() bool { created, _ := s.requests(); return created == 2 })
	if _, patched := s.requests(); patched != burst-1 {
		t.Errorf("the Event of the storm was patched %d times, want %d", patched, burst-1)
	}
	got := s.created[0]
	if got.Namespace != "kube-system" || got.InvolvedObject.Kind != "Stage" || got.InvolvedObject.Name != "core" || got.Type != "Warning" ||
		got.ReportingController != Controller || got.Source.Host != "machine" {
		t.Errorf("Event of a stage: %+v", got)
	}
	if host := s.created[1]; host.InvolvedObject.Kind != "Host" || host.InvolvedObject.Name != "machine" || host.Type != "Normal" {
		t.Errorf("Event of the host: %+v", host)
	}
	if last := s.patched[len(s.patched)-1]; !strings.Contains(last, `"count":25`) {
		t.Errorf("the last patch is %s", last)
	}
}

// An Event that cannot be written is not tried again, and keeps no later one waiting.
func TestBrokenServer(t *testing.T) {
	t.Parallel()
	s := &server{broken: true}
	r := newRecorder(t, s)
	go r.Run(t.Context(), func() bool { return true })
	for _, stage := range []string{"a", "b", "c"} {
		r.Record(Event{Stage: stage, Reason: "StageFailed", At: time.Now()})
	}
	eventually(t, "the last Event is tried", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.created) > 0 && s.created[len(s.created)-1].InvolvedObject.Name == "c"
	})
	if created, patched := s.requests(); created != 3 || patched != 0 {
		t.Errorf("3 Events have led to %d creations and %d patches", created, patched)
	}
}

func TestNothingWithoutReadiness(t *testing.T) {
	t.Parallel()
	s := &server{}
	r := newRecorder(t, s)
	asked := make(chan struct{}, 10)
	ready := false
	go r.Run(t.Context(), func() bool { asked <- struct{}{}; return ready })
	r.Record(Event{Stage: "early"})
	<-asked
	if created, _ := s.requests(); created != 0 {
		t.Error("an Event is written before there is something that serves it")
	}
}

// Nobody waits for Events to be written, even if none is.
func TestRecordDoesNotWait(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, &server{})
	for range 10 * waiting {
		r.Record(Event{Stage: "core"})
	}
	if len(r.queue) != waiting {
		t.Errorf("%d Events wait, want %d", len(r.queue), waiting)
	}
}
