package sdk_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
)

// A stream that a stage passes on ends when the stage drains, properly and after a whole event: whether it is silent, or
// never quiet for long.
func TestCallsEndWithDrain(t *testing.T) {
	t.Parallel()
	for name, pace := range map[string]time.Duration{"silent": 0, "busy": callPace} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				for i := 0; ; i++ {
					fmt.Fprintf(w, "event %d\n", i)
					_ = http.NewResponseController(w).Flush()
					wait := make(<-chan time.Time)
					if pace > 0 {
						wait = time.After(pace)
					}
					select {
					case <-wait:
					case <-r.Context().Done():
						return
					}
				}
			})
			stage := stagetest.Start(t, sdk.Stage{Name: "through", New: func(env *sdk.Env) (http.Handler, error) {
				env.ClaimPrefix("/")
				return env.Call, nil
			}}, stagetest.Options{Next: next})
			resp, err := http.Get(stage.URL + "/")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			begin := make([]byte, len("event 0\n"))
			if _, err := io.ReadFull(resp.Body, begin); err != nil {
				t.Fatal(err)
			}
			rest := make(chan error, 1)
			go func() {
				text, err := io.ReadAll(resp.Body)
				if err == nil && len(text) > 0 && !strings.HasSuffix(string(text), "\n") {
					err = fmt.Errorf("ends in %q", text[max(0, len(text)-10):])
				}
				rest <- err
			}()
			if n := stage.Drain(t, 20*time.Second); n != 0 {
				t.Errorf("%d requests at the end of the drain", n)
			}
			if err := <-rest; err != nil {
				t.Error(err)
			}
		})
	}
}

// callPace is shorter than a stream has to be quiet to be between two events.
const callPace = 20 * time.Millisecond
