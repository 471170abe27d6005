package relay

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

// TestGiveWay shows that a stream which breaks off ends when another process takes the place of the one that it
// was with.
func TestGiveWay(t *testing.T) {
	t.Parallel()
	for name, states := range map[string][]bool{ // whether requests wait, one state after the other
		"another is coming up": {true, false},
		"another is there":     {false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket, broken := breakingStage(t)
			chain := newChain(t, Config{}, socket)
			chain.maxGiveWay = patience
			ended := stream(t, chain)
			close(broken)
			eventually(t, "the stream to break off", func() bool { return inFlightAt(chain) == 0 })
			for _, held := range states {
				select {
				case <-ended:
					t.Fatal("the stream has ended before there is another process")
				default:
				}
				chain.Set(Tables{All: order(1)}, []Stage{{Name: "a", Socket: socket, Held: held}})
			}
			within(t, "the end of the stream", ended)
		})
	}
}

// TestGiveWayToNobody shows that the stream ends also if no other process comes.
func TestGiveWayToNobody(t *testing.T) {
	t.Parallel()
	socket, broken := breakingStage(t)
	ended := stream(t, newChain(t, Config{}, socket))
	close(broken)
	within(t, "the end of the stream", ended)
}

// TestBrokenWatch shows that a watch which breaks off just ends.
func TestBrokenWatch(t *testing.T) {
	t.Parallel()
	socket, broken := breakingStage(t)
	chain := newChain(t, Config{Watch: func(*http.Request) bool { return true }}, socket)
	ended := stream(t, chain)
	close(broken)
	within(t, "the end of the watch", ended)
}

// TestGiveWayTooLate shows that the stream ends at once if another process has been there before it broke off.
func TestGiveWayTooLate(t *testing.T) {
	t.Parallel()
	socket, broken := breakingStage(t)
	chain := newChain(t, Config{}, socket)
	chain.maxGiveWay = time.Hour
	ended := stream(t, chain)
	chain.Set(Tables{All: order(1)}, []Stage{{Name: "a", Socket: serveStage(t, respondsWith("new"))}})
	close(broken)
	within(t, "the end of the stream", ended)
}

// breakingStage is a stage whose responses break off once broken is closed.
func breakingStage(t *testing.T) (socket string, broken chan struct{}) {
	broken = make(chan struct{})
	return serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "an event")
		http.NewResponseController(w).Flush()
		<-broken
		panic(http.ErrAbortHandler)
	})), broken
}

// stream begins a request, and returns when its response has begun. The channel gets a value when that has ended.
func stream(t *testing.T, chain *Chain) <-chan struct{} {
	t.Helper()
	srv := serve(t, chain)
	resp, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	watch := chain.config.Watch(resp.Request)
	ended := make(chan struct{}, 1)
	go func() {
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); (err == nil) != watch {
			t.Errorf("the end of a response that has broken off, which is a watch: %v: %v", watch, err)
		}
		ended <- struct{}{}
	}()
	return ended
}
