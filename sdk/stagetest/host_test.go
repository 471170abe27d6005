package stagetest

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// A stage that says that a watch has sent its initial events is told that this was heard.
func TestInitialized(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set(stagev1.HeaderInitialized, "1")
	w := httptest.NewRecorder()
	hostHandler{&Stage{}}.ServeHTTP(w, r)
	if w.Code != http.StatusNoContent {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
