package dashboard

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/catena-dev/catena/host/internal/panics"
)

const (
	// maxReaders is how many browsers can follow the chain at a time. The others show it as it was when they loaded the page.
	maxReaders = 100
	// period is how often what changes all the time is sent, and quick the least time between two updates.
	period = time.Second
	quick  = 100 * time.Millisecond
	// writeTimeout ends the stream of a browser that does not read it.
	writeTimeout = 10 * time.Second
)

// feed sends updates of a page to browsers as server-sent events. An update is rendered once for all readers, and only
// while there are any; a reader who is late misses some.
type feed struct {
	source Source
	render func(context.Context) ([]byte, error)

	mu      sync.Mutex
	readers int
	stop    context.CancelFunc // ends the updates; nil without readers
	message []byte
	// updated is closed when there is another message.
	updated chan struct{}
	// closed is closed when no updates are sent any more.
	closed chan struct{}
	// writeTimeout is the constant; tests change it.
	writeTimeout time.Duration
}

func newFeed(source Source, render func(context.Context) ([]byte, error)) *feed {
	return &feed{source: source, render: render, closed: make(chan struct{}), writeTimeout: writeTimeout}
}

// serve sends updates until the browser goes away, or does not read them.
func (f *feed) serve(w http.ResponseWriter, r *http.Request) {
	select {
	case <-f.closed:
		http.Error(w, "the server is stopping", http.StatusServiceUnavailable)
		return
	default:
	}
	if !f.enter() {
		w.Header().Set("Retry-After", "10")
		http.Error(w, "too many browsers follow this page", http.StatusTooManyRequests)
		return
	}
	defer f.leave()
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	send := func(message []byte) error {
		// Without a deadline, a browser that does not read would keep the goroutine for as long as its connection is there.
		if err := out.SetWriteDeadline(time.Now().Add(f.writeTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		if _, err := w.Write(message); err != nil {
			return err
		}
		return out.Flush()
	}
	for message, next := f.latest(); ; message, next = f.latest() {
		if len(message) > 0 {
			if send(message) != nil {
				return
			}
		}
		select {
		case <-next:
		case <-f.closed:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// enter counts a reader, and begins to update for the first. It reports whether there is room.
func (f *feed) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.readers >= maxReaders {
		return false
	}
	if f.readers++; f.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		f.stop, f.message, f.updated = cancel, nil, make(chan struct{})
		go panics.Contain(func() { f.run(ctx) }, func(error) { // readers see that there is nothing new, and the page says so
			f.mu.Lock()
			defer f.mu.Unlock()
			f.stop = nil
		})()
	}
	return true
}

func (f *feed) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.readers--; f.readers == 0 && f.stop != nil {
		f.stop()
		f.stop = nil
	}
}

func (f *feed) latest() (message []byte, next <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.message, f.updated
}

// run renders an update whenever something has happened, and once in each period.
func (f *feed) run(ctx context.Context) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		changed := f.source.Changed()
		f.update(ctx)
		select {
		case <-time.After(quick):
		case <-ctx.Done():
			return
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (f *feed) update(ctx context.Context) {
	content, err := f.render(ctx)
	message := event("live", content)
	if err != nil {
		message = event("problem", []byte(err.Error()))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil { // the readers of another run have come
		return
	}
	f.message = message
	close(f.updated)
	f.updated = make(chan struct{})
}

// event is a server-sent event.
func event(name string, content []byte) []byte {
	var out bytes.Buffer
	out.WriteString("event: " + name + "\n")
	for line := range strings.Lines(string(content)) {
		out.WriteString("data: " + strings.ReplaceAll(strings.TrimRight(line, "\r\n"), "\r", " ") + "\n") // which would end a line, too
	}
	out.WriteString("\n")
	return out.Bytes()
}
