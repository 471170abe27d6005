package system

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// A request goes to the stage that claims its path in one hop, however many stages are
// in front of it, and the others do not see it.
func TestOneHopHoweverLongTheChain(t *testing.T) {
	t.Parallel()
	for _, length := range []int{1, 3, 8} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			t.Parallel()
			names, config := claimingChain(t, length)
			c := smallCatena(t, config, nil, names...)
			admin := c.Config(cluster.Admin)
			for _, name := range names {
				checkHops(t, admin, names, "/stage/"+name, map[string]int{name: 1})
			}
			// What no stage claims reaches no stage.
			checkHops(t, admin, names, "/nowhere", nil)
		})
	}
}

// claimingChain is a chain of stages that see nothing but what they claim.
func claimingChain(t *testing.T, length int) (names []string, config string) {
	_, settings, _ := strings.Cut(string(read(helloConfig(t))), "kind: HostConfiguration\n")
	settings, _, _ = strings.Cut(settings, "stages:\n")
	lines := []string{"apiVersion: catena.dev/v1alpha1\nkind: HostConfiguration\n" + settings + "stages:"}
	for i := range length {
		names = append(names, fmt.Sprintf("s%d", i))
		delegate := fmt.Sprintf("delegate: s%d, ", i+1)
		if i == length-1 {
			delegate = ""
		}
		lines = append(lines, fmt.Sprintf("  s%d: {lock: off, %sconfig: {serves: [/s%d]}}", i, delegate, i))
	}
	return names, strings.Join(lines, "\n") + "\n"
}

// checkHops sends requests and checks how many hops each of them makes to each stage.
func checkHops(t *testing.T, config *rest.Config, stages []string, path string, want map[string]int) {
	t.Helper()
	const requests = 20
	hops := func() map[string]int {
		h := map[string]int{}
		for _, stage := range stages {
			h[stage] = int(counter(t, config, "catena_relay_hops_total", fmt.Sprintf("stage=%q", stage)))
		}
		return h
	}
	before := hops()
	for range requests {
		if a := do(t, config, http.MethodGet, path, ""); (a.code == http.StatusOK) != (want != nil) {
			t.Fatalf("%s: %d %s", path, a.code, a.body)
		}
	}
	for stage, n := range hops() {
		if got := n - before[stage]; got != want[stage]*requests {
			t.Errorf("%d requests to %s make %d hops to stage %s, want %d", requests, path, got, stage, want[stage]*requests)
		}
	}
}
