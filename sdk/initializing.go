package sdk

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// initializedTimeout bounds the message that a watch has sent its initial events.
const initializedTimeout = time.Minute

// Initializing tells the host that a watch is going to send its initial events after its
// response has begun. It occupies its seats of priority and fairness until initialized is
// called, or the response ends; any other watch gives them back when its response
// begins. Initializing is called before that; initialized can be called from any goroutine, and does not wait.
func (e *Env) Initializing(w http.ResponseWriter) (initialized func()) {
	x := exchangeOf(w)
	if x == nil || x.id == "" {
		return func() {}
	}
	SetHostHeader(w, stagev1.HeaderInitializing, "true")
	id := x.id
	return sync.OnceFunc(func() { go e.sendInitialized(id) })
}

func (e *Env) sendInitialized(id string) {
	ctx, cancel := context.WithTimeout(e.ctx, initializedTimeout)
	defer cancel()
	if err := tellHost(ctx, e, stagev1.HeaderInitialized, id, nil); err != nil && e.ctx.Err() == nil {
		e.Log.Warn("a watch keeps its seats of priority and fairness: the host did not learn that it has begun", "error", err)
	}
}

// tellHost sends a message about a request in flight.
func tellHost(ctx context.Context, e *Env, key, id string, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+hostName+"/", bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+e.host.Token)
	r.Header.Set(key, id)
	resp, err := e.transports.relay.RoundTrip(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("the host responds with %s", resp.Status)
	}
	return nil
}
