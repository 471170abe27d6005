package sdk_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk/stagetest"
)

// A stage can bound the bodies that it hands on with what net/http has for that. The
// client is told that its body is too large, and not that the server is broken.
func TestNextLimitsTheBody(t *testing.T) {
	both(t, func(t *testing.T, start start) {
		stage := start(t, stagetest.Options{Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, n, err)
		})})
		for size, want := range map[int]int{
			limitOfBody: http.StatusOK, limitOfBody + 1: http.StatusRequestEntityTooLarge, 2 * limitOfBody: http.StatusRequestEntityTooLarge,
		} {
			for _, unknown := range []bool{false, true} {
				req, err := http.NewRequest(http.MethodPut, stage.URL+"/limit", bytes.NewReader(make([]byte, size)))
				if err != nil {
					t.Fatal(err)
				}
				if unknown {
					req.ContentLength = -1
				}
				resp, body := do(t, req)
				if resp.StatusCode != want || resp.Header.Get("Retry-After") != "" {
					t.Errorf("%d bytes, length unknown: %v: %s, want %d: %s", size, unknown, resp.Status, want, body)
				}
				if want == http.StatusOK && body != fmt.Sprint(size, nil) {
					t.Errorf("%d bytes: the next stage got %s", size, body)
				}
				if want != http.StatusOK {
					tooLarge(t, body)
				}
			}
		}
		if got := stage.Declined(); got != 0 {
			t.Errorf("%d declines, want calls", got)
		}
	})
}

func tooLarge(t *testing.T, body string) {
	t.Helper()
	var status struct{ Kind, Reason, Message string }
	err := json.Unmarshal([]byte(body), &status)
	if err != nil || status.Kind != "Status" || status.Reason != "RequestEntityTooLarge" || !strings.HasSuffix(status.Message, fmt.Sprint("limit is ", limitOfBody)) {
		t.Errorf("%s: %v", body, err)
	}
}
