package sdk_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// What a stage asks for to serve a request says so, if it has the context of that request.
func TestCause(t *testing.T) {
	t.Parallel()
	cause := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get(stagev1.HeaderCause))
	})
	stage := stagetest.Start(t, sdk.Stage{Name: "asking", New: func(env *sdk.Env) (http.Handler, error) {
		env.Claim("/own", "/another")
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx := r.Context()
			if r.URL.Path == "/another" {
				ctx = context.WithoutCancel(env.Context())
			}
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://catena/", nil)
			req.Header.Set(stagev1.HeaderCause, "forged")
			resp, err := env.Client().Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			got, _ := io.ReadAll(resp.Body)
			_, _ = fmt.Fprintf(w, "%t %s", string(got) == r.Header.Get(stagev1.HeaderRequest), got)
		}), nil
	}}, stagetest.Options{API: cause})
	if got := stage.Get(t, "/own").Body; !strings.HasPrefix(got, "true ") || got == "true " {
		t.Errorf("with the context of the request: %q", got)
	}
	if got := stage.Get(t, "/another").Body; got != "false " {
		t.Errorf("with another: %q", got)
	}
}
