package delegates

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"

	"github.com/catena-dev/catena/sdk"
)

// documents is a delegate with both documents, which counts the requests for each.
type documents struct {
	stage
	asked map[string]int
	index string
	down  bool
}

func (d *documents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	d.asked[r.URL.Path]++
	index, down := d.index, d.down
	d.mu.Unlock()
	switch {
	case down:
		http.Error(w, "out of order", http.StatusServiceUnavailable)
	case r.URL.Path == openAPIv3:
		_, _ = io.WriteString(w, index)
	default:
		d.stage.ServeHTTP(w, r)
	}
}

func (d *documents) change(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

func TestDelegateAtRestIsAskedLess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &documents{index: "{}", asked: map[string]int{}, stage: stage{etag: "1"}}
		d := NewDiscovery(sdk.Delegate{Name: "s", Handler: s}, aggregated.NewResourceManager("apis"), nil)
		gate := d.Gate()
		go d.Run(t.Context())
		<-d.Synced()
		var served string
		go func() { // as Kubernetes' aggregator
			for tick := time.Tick(pollInterval); ; {
				w := httptest.NewRecorder()
				gate.ServeHTTP(w, httptest.NewRequest(http.MethodGet, openAPIv3, nil))
				s.change(func() { served = w.Body.String() })
				select {
				case <-tick:
				case <-t.Context().Done():
					return
				}
			}
		}()
		// asked returns how often each document is asked for in a minute.
		asked := func() (discovery, index int) {
			s.change(func() { clear(s.asked) })
			time.Sleep(time.Minute)
			s.change(func() { discovery, index = s.asked[apis], s.asked[openAPIv3] })
			return discovery, index
		}
		const perMinute, resting = int(time.Minute / pollInterval), int(time.Minute / restInterval)
		time.Sleep(restAfter)
		if discovery, index := asked(); discovery > resting+1 || index > resting+1 || discovery < resting-1 || index < resting-1 {
			t.Errorf("at rest, discovery is asked for %d times in a minute, and the index %d times: want %d", discovery, index, resting)
		}
		for what, change := range map[string]func(){
			"discovery has changed": func() { s.set("2", 0, group("a", "v1")) },
			"the index has changed": func() { s.change(func() { s.index = `{"paths":{}}` }) },
			"a poke":                d.Poke,
		} {
			change()
			time.Sleep(restInterval) // that it is noticed
			s.change(func() { clear(s.asked) })
			time.Sleep(restAfter / 2)
			s.change(func() {
				if want := int(restAfter / 2 / pollInterval); s.asked[apis] < want-1 || s.asked[openAPIv3] < want-1 {
					t.Errorf("%s: discovery is asked for %d times, and the index %d times, want %d", what, s.asked[apis], s.asked[openAPIv3], want)
				}
				if served != s.index {
					t.Errorf("%s: the index served is %s", what, served)
				}
			})
			time.Sleep(time.Minute)
		}
		s.change(func() { s.down = true })
		time.Sleep(restInterval)
		if discovery, index := asked(); discovery < perMinute-1 || index < perMinute-1 {
			t.Errorf("down, discovery is asked for %d times in a minute, and the index %d times: want %d", discovery, index, perMinute)
		}
	})
}
