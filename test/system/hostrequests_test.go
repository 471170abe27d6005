package system

import (
	"net/http"
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/test/internal/cluster"
)

// newBreaker is a stage that breaks off the responses to new Events, in their middle.
func newBreaker(env *sdk.Env) (http.Handler, error) {
	env.ClaimPrefix("/")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/events") {
			sdk.Decline(w)
			return
		}
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("{"))
		_ = http.NewResponseController(w).Flush()
		env.Log.Error("breaks off an Event")
		panic(http.ErrAbortHandler)
	}), nil
}

// The host makes requests to its own chain, without net/http: a response that breaks off ends none but that request.
func TestEventOfTheHostBreaksOff(t *testing.T) {
	t.Parallel()
	config := write(t, "catena.yaml", `apiVersion: catena.dev/v1alpha1
kind: HostConfiguration
kubernetesEvents: on
stages:
  breaker: {lock: off, delegate: aggregator, grants: {claims: ["/**"], systemRequests: true}}
  aggregator: {delegate: core}
  core: {delegate: extensions}
  extensions: {}
`)
	c := catena(t, cluster.Options{ConfigFile: config, PluginDirs: []string{plugins(t, "breaker")}})
	if _, err := c.Command(t.Context(), "swap", "extensions"); err != nil { // of which the host makes an Event
		t.Fatal(err)
	}
	eventually(t, "the host makes an Event", func() bool {
		return strings.Contains(string(read(c.Process().Log)), "breaks off an Event")
	})
	kubectl(t, c.Server, "get", "namespaces")
}
