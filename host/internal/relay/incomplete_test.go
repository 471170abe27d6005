package relay

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// Documents that several stages have a part in wait for a process that does not know yet all that it serves, whoever asks for
// them but the stages for themselves. All else does not wait.
func TestDocumentsWaitForAnIncompleteStage(t *testing.T) {
	t.Parallel()
	socket := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	failed := make(chan *StageError, 1)
	chain := newChain(t, Config{Error: func(w http.ResponseWriter, r *http.Request, e *StageError) {
		failed <- e
		WriteError(w, r, e)
	}}, socket)
	set := func(incomplete bool) {
		chain.Set(Tables{All: order(1)}, []Stage{{Name: "a", Socket: socket, Incomplete: incomplete}})
	}
	ask := func(ctx context.Context, method, path string) int {
		rec := httptest.NewRecorder()
		chain.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, method, path, nil))
		return rec.Code
	}
	client, merging := t.Context(), WithStage(t.Context(), "a", "")
	own := withCall(httptest.NewRequestWithContext(t.Context(), "GET", "/", nil), &call{}).Context()

	set(true)
	for what, code := range map[string]int{
		"a resource":                   ask(client, "GET", "/apis/example.com/v1/things"),
		"a write":                      ask(client, "POST", "/apis"),
		"what a stage asks for itself": ask(own, "GET", "/apis"),
	} {
		if code != http.StatusTeapot {
			t.Errorf("%s: %d", what, code)
		}
	}
	paths := []string{"/apis", "/api", "/apis/example.com", "/apis/example.com/v1", "/openapi/v2", "/openapi/v3/apis/example.com/v1"}
	codes := make(chan int)
	for _, path := range paths {
		for _, ctx := range []context.Context{client, merging} {
			go func() { codes <- ask(ctx, "GET", path) }()
		}
	}
	eventually(t, "all documents to wait", func() bool { return waiting(chain) == 2*len(paths) })
	select {
	case code := <-codes:
		t.Errorf("%d", code)
	default:
	}
	set(true) // another change
	set(false)
	for range 2 * len(paths) {
		if code := within(t, "a document", codes); code != http.StatusTeapot {
			t.Errorf("%d", code)
		}
	}

	set(true)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	go ask(ctx, "HEAD", "/apis")
	eventually(t, "the document to wait", func() bool { return waiting(chain) == 1 })
	cancel(gone)
	if e := within(t, "the end of the request", failed); e.Kind != Canceled || !errors.Is(e, gone) {
		t.Errorf("a client that has gone: %v", e)
	}
}

// A process that takes the request for a document from the backlog of the one before is not believed what it responds.
func TestDocumentOfTheBacklog(t *testing.T) {
	t.Parallel()
	var chain *Chain
	var asked atomic.Int64
	var socket string
	set := func(incomplete bool) {
		chain.Set(Tables{All: order(1)}, []Stage{{Name: "a", Socket: socket, Incomplete: incomplete}})
	}
	socket = serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := asked.Add(1)
		if n == 1 {
			set(true) // it was another process up to now
		}
		fmt.Fprint(w, n)
	}))
	chain = newChain(t, Config{}, socket)
	rec := httptest.NewRecorder()
	ended := make(chan struct{})
	go func() {
		chain.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), "GET", "/apis", nil))
		close(ended)
	}()
	eventually(t, "the document to wait", func() bool { return waiting(chain) == 1 })
	set(false)
	within(t, "the document", ended)
	if rec.Code != http.StatusOK || rec.Body.String() != "2" {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}
