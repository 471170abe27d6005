package front_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/catena-dev/catena/host/internal/relay"
)

// The timeout filter and the relay notice a deadline at the same time. The client gets the
// filter's response, whole, whichever of them is faster.
func TestDeadlineHasOneResponse(t *testing.T) {
	t.Parallel()
	var s *server
	s = start(t, open(t), func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		s.StageError(w, r, &relay.StageError{Kind: relay.Canceled, Stage: "core", Err: r.Context().Err()})
	})
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for range 4 {
				a := s.admin(t).get(t, "/x?timeout=100ms")
				if a.code != http.StatusGatewayTimeout || !strings.Contains(string(a.body), "allotted timeout") {
					t.Errorf("response %d %s", a.code, a.body)
				}
			}
		})
	}
	wg.Wait()
}
