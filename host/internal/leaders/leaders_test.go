package leaders

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/store"
)

const patience = 30 * time.Second

// served is a server with leaders on a store of its own.
type served struct {
	*httptest.Server
	leaders *Leaders
	store   *store.Store
}

func serve(t *testing.T) *served {
	t.Helper()
	dir := t.TempDir()
	options := store.Options{Dir: dir, Socket: filepath.Join(dir, "etcd.sock"), Ephemeral: true}
	s, err := store.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	l := New("/registry", func() (*clientv3.Client, error) { return options.Connect() })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.Serve(w, r, r.URL.Query().Get("stage"), r.URL.Query().Get("name"))
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		_ = s.Close(context.Background())
	})
	return &served{server, l, s}
}

// ask asks for a lead, and returns the response when it has begun.
func (s *served) ask(t *testing.T, query string) (response <-chan *http.Response, end func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	responses := make(chan *http.Response, 1)
	go func() {
		defer close(responses)
		r, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"?"+query, http.NoBody)
		resp, err := s.Client().Do(r)
		if err == nil {
			responses <- resp
		}
	}()
	return responses, cancel
}

func leads(t *testing.T, responses <-chan *http.Response) *http.Response {
	t.Helper()
	resp := <-responses
	if resp == nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("no lead: %v", resp)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// One request has a lead at a time, and the next one when it has ended; other names and stages have leads of their own.
func TestOneLeads(t *testing.T) {
	t.Parallel()
	s := serve(t)
	first, end := s.ask(t, "stage=a&name=worker")
	leads(t, first)
	second, _ := s.ask(t, "stage=a&name=worker")
	other, _ := s.ask(t, "stage=a&name=other")
	leads(t, other)
	elsewhere, _ := s.ask(t, "stage=b&name=worker")
	leads(t, elsewhere)
	select {
	case <-second:
		t.Fatal("two lead")
	default:
	}
	end()
	leads(t, second)
}

// Whoever leads learns that the store does not say so any more.
func TestLeadIsLost(t *testing.T) {
	t.Parallel()
	s := serve(t)
	lead, _ := s.ask(t, "stage=a&name=worker")
	resp := leads(t, lead)
	found, err := s.leaders.client.Get(t.Context(), "/registry.leaders/a/worker/", clientv3.WithPrefix())
	if err != nil || len(found.Kvs) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	if _, err := s.leaders.client.Revoke(t.Context(), clientv3.LeaseID(found.Kvs[0].Lease)); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err == nil {
		t.Errorf("the response ends with %q, %v, want that it breaks off", rest, err)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, name := range []string{"", "A", "a/b", ".a", strings.Repeat("a", 64)} {
		responses, _ := s.ask(t, "stage=a&name="+name)
		if resp := <-responses; resp == nil || resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: %v", name, resp)
		}
	}
	for range bounds.Leads {
		s.ask(t, "stage=a&name=worker")
	}
	for deadline := time.Now().Add(patience); ; {
		responses, end := s.ask(t, "stage=a&name=more")
		select {
		case resp := <-responses:
			if resp != nil && resp.StatusCode == http.StatusTooManyRequests {
				return
			}
		case <-time.After(time.Second):
		}
		end()
		if time.Now().After(deadline) {
			t.Fatal("a stage has more leads than it may")
		}
	}
}
