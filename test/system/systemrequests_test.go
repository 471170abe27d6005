package system

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/test/internal/cluster"
)

// newGossip is a stage that tells at /gossip whose requests it has seen.
func newGossip(env *sdk.Env) (http.Handler, error) {
	var mu sync.Mutex
	users := map[string]int{}
	env.ClaimPrefix("/")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path == "/gossip" {
			_ = json.NewEncoder(w).Encode(users)
			return
		}
		if user := sdk.UserFrom(r.Context()); user != nil {
			users[user.Name]++
		}
		sdk.Decline(w)
	}), nil
}

// What the host and Kubernetes' stages ask goes past a stage of somebody else, unless that is granted
// to have it: informers, bootstrap roles, registrations.
func TestSystemRequestsBypassAStage(t *testing.T) {
	t.Parallel()
	for _, granted := range []bool{false, true} {
		t.Run(fmt.Sprintf("granted=%t", granted), func(t *testing.T) {
			t.Parallel()
			config := write(t, "catena.yaml", fmt.Sprintf(`apiVersion: catena.dev/v1alpha1
kind: HostConfiguration
log: {stageLevel: error}
stages:
  gossip: {lock: off, delegate: aggregator, grants: {claims: ["/**"], systemRequests: %t}}
  aggregator: {delegate: core}
  core: {delegate: extensions}
  extensions: {}
`, granted))
			c := catena(t, cluster.Options{ConfigFile: config, PluginDirs: []string{plugins(t, "gossip")}})
			kubectl(t, c.Server, "get", "namespaces")
			var users map[string]int
			a := do(t, c.Config(cluster.Admin), http.MethodGet, "/gossip", "")
			if err := json.Unmarshal([]byte(a.body), &users); err != nil {
				t.Fatalf("%v: %d %s", err, a.code, a.body)
			}
			if users[cluster.Admin] == 0 || (users["system:apiserver"] > 0) != granted {
				t.Errorf("the stage has seen requests of %v", users)
			}
		})
	}
}
