package system

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// school is a level of priority and fairness in which each user has a flow of its own.
const school = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: school}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: herring}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: swarm}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: school}
spec:
  type: Limited
  limited: {nominalConcurrencyShares: 1, borrowingLimitPercent: 0, limitResponse: {type: Queue, queuing: {queues: 64, handSize: 4, queueLengthLimit: 1000}}}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: school}
spec:
  priorityLevelConfiguration: {name: school}
  matchingPrecedence: 100
  distinguisherMethod: {type: ByUser}
  rules:
  - subjects: [{kind: User, user: {name: herring}}, {kind: User, user: {name: swarm}}]
    resourceRules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"], clusterScope: true, namespaces: ["*"]}]
`

const (
	asHerring = "Impersonate-User: herring"
	asSwarm   = "Impersonate-User: swarm"
)

// The filter of priority and fairness is in the host, and what it goes by is in the stages. It
// decides as in kube-apiserver.
func TestFairness(t *testing.T) {
	p := startPair(t, cluster.Options{Flags: map[string]string{"etcd-count-metric-poll-period": "1s"}})
	p.each(func(_ string, s *cluster.Server) {
		apply(t, s, school)
		apply(t, s, whale)
		kubectl(t, s, "create", "namespace", "pond")
		awaitLevel(t, s, "school", asHerring)
		awaitLevel(t, s, "whale", asWhale)
	})
	t.Run("cost of lists", func(t *testing.T) { testCostOfLists(t, p) })
	t.Run("initial events", func(t *testing.T) { testSeatsOfInitialEvents(t, p) })
	t.Run("a flood", func(t *testing.T) { testFlood(t, p) })
	t.Run("pages", func(t *testing.T) { testFlowPages(t, p) })
}

// seatsOf returns what the filter takes a request to cost.
func seatsOf(t *testing.T, config *rest.Config, path string) float64 {
	t.Helper()
	sum := func() float64 {
		return counter(t, config, "apiserver_flowcontrol_work_estimated_seats_sum", `flow_schema="whale"`)
	}
	before := sum()
	if a := do(t, config, http.MethodGet, path, "", asWhale); a.code != 200 {
		t.Fatalf("%s: %d %s", path, a.code, a.body)
	}
	return sum() - before
}

func testCostOfLists(t *testing.T, p pair) {
	const path = "/apis/apps/v1/namespaces/pond/controllerrevisions"
	p.each(func(_ string, s *cluster.Server) {
		for range 8 {
			body := fmt.Sprintf(`{"metadata": {"generateName": "large-"}, "revision": 1, "data": {"a": %q}}`, strings.Repeat("x", 250_000))
			if a := do(t, s.Config(cluster.Admin), http.MethodPost, path, body); a.code != 201 {
				t.Fatalf("create: %d %.300s", a.code, a.body)
			}
		}
	})
	queries := []string{"", "?limit=1", "?limit=4", "?resourceVersion=0", "?fieldSelector=metadata.name%3Da", "?labelSelector=a%3Db", "?watch=1&timeoutSeconds=1",
		"?watch=1&timeoutSeconds=1&resourceVersion=0", "?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"}
	var want, got map[string]float64
	eventually(t, "lists cost the same", func() bool {
		want, got = map[string]float64{}, map[string]float64{}
		p.atOnce(t, func(t *testing.T, _ string, s *cluster.Server) {
			costs := got
			if s == p.theirs.Server {
				costs = want
			}
			for _, q := range queries {
				costs[q] = seatsOf(t, s.Config(cluster.Admin), path+q)
			}
		})
		return maps.Equal(want, got) && want[""] > 1 && want["?limit=1"] < want[""]
	}, func() string { return fmt.Sprintf("they cost\n%v\nand in kube-apiserver\n%v", got, want) })
}

// A watch keeps its seats while its initial events are being sent, and gives them back then. The client
// here does not read, until it is told to.
func testSeatsOfInitialEvents(t *testing.T, p pair) {
	const objects, size = 300, 100_000 // more than the buffers between a server and its client hold
	const path = "/api/v1/namespaces/pond/configmaps"
	p.each(func(name string, s *cluster.Server) {
		admin := s.Config(cluster.Admin)
		fill(t, admin, path, objects, size)
		seats := func() float64 {
			return counter(t, admin, "apiserver_flowcontrol_current_executing_seats", `flow_schema="school"`)
		}
		for query, last := range map[string]string{
			"?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan": `"k8s.io/initial-events-end":"true"`,
			"?watch=1&labelSelector=fill": `"number":"` + itoa(objects-1) + `"`,
		} {
			conn := dial(t, s)
			conn.send("GET " + path + query + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin-token\r\n" + asHerring + "\r\n\r\n")
			resp := conn.response(http.MethodGet)
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("%s: %s: %s", name, query, resp.Status)
			}
			in := bufio.NewReader(resp.Body)
			if _, err := in.ReadString('\n'); err != nil {
				t.Fatalf("%s: %s: %v", name, query, err)
			}
			if n := seats(); n == 0 {
				t.Errorf("%s: %s: a watch whose initial events are under way occupies no seat", name, query)
			}
			seen := 0
			for line := ""; !strings.Contains(line, last) && seen < objects; seen++ {
				var err error
				if line, err = in.ReadString('\n'); err != nil {
					t.Fatalf("%s: %s: after %d events: %v", name, query, seen, err)
				}
			}
			eventually(t, name+": a watch that has begun occupies no seat: "+query, func() bool { return seats() == 0 })
			_ = conn.Close()
		}
	})
}

// fill makes objects that are large.
func fill(t *testing.T, config *rest.Config, path string, objects, size int) {
	t.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	client := httpClient(t, config)
	for range 8 {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(objects); i = next.Add(1) - 1 {
				body := fmt.Sprintf(`{"metadata": {"name": "fill-%04d", "labels": {"fill": "yes"}}, "data": {"number": "%d", "a": %q}}`, i, i, strings.Repeat("x", size))
				resp, err := client.Post(config.Host+path, "application/json", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusCreated {
					t.Errorf("create: %s", resp.Status)
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// A user who floods the server does not starve another one of the same level. What the other one gets is
// compared with what kube-apiserver gives it.
func testFlood(t *testing.T, p pair) {
	var want, got float64
	p.atOnce(t, func(t *testing.T, _ string, s *cluster.Server) {
		share := &got
		if s == p.theirs.Server {
			share = &want
		}
		hook := startThinkingWebhook(t, func() { time.Sleep(50 * time.Millisecond) }) // so that seats are scarce, and not processors
		apply(t, s, hook.configuration())
		kubectl(t, s, "get", "validatingwebhookconfiguration", "slow")
		*share = shareOf(t, s)
		kubectl(t, s, "delete", "validatingwebhookconfiguration", "slow")
	})
	t.Logf("shares of one who asks with 4 requests at a time beside one with 60: %.2f, in kube-apiserver %.2f", got, want)
	if got < want/2 || got > want*2 || want < 0.1 {
		t.Errorf("it gets %.2f of all requests, and %.2f in kube-apiserver", got, want)
	}
}

// shareOf is how much of all that a server does is done for one of two users.
func shareOf(t *testing.T, s *cluster.Server) float64 {
	t.Helper()
	const total = 400
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	var served [2]atomic.Int64
	client := httpClient(t, s.Config(cluster.Admin))
	ask := func(n *atomic.Int64, as string) {
		for ctx.Err() == nil {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/api/v1/namespaces/pond/configmaps?dryRun=All",
				strings.NewReader(`{"metadata": {"generateName": "a", "labels": {"slow": "yes"}}}`))
			if err != nil {
				t.Error(err)
				return
			}
			r.Header = headerOf([]string{as, "Content-Type: application/json"})
			resp, err := client.Do(r)
			if err != nil {
				continue // the end
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusCreated && served[0].Load()+served[1].Load() < total {
				n.Add(1)
			}
		}
	}
	for range 60 {
		wg.Go(func() { ask(&served[1], asSwarm) })
	}
	for range 4 {
		wg.Go(func() { ask(&served[0], asHerring) })
	}
	eventually(t, "many requests are served", func() bool { return served[0].Load()+served[1].Load() >= total })
	cancel()
	wg.Wait()
	return float64(served[0].Load()) / total
}

// The pages show the same levels and flows.
func testFlowPages(t *testing.T, p pair) {
	for page, column := range map[string]int{"dump_priority_levels": 0, "dump_queues": 0, "dump_requests": -1} {
		var all [][]string
		p.each(func(_ string, s *cluster.Server) {
			a := do(t, s.Config(cluster.Admin), http.MethodGet, "/debug/api_priority_and_fairness/"+page, "")
			if a.code != http.StatusOK {
				t.Fatalf("%s: %d %s", page, a.code, a.body)
			}
			head, rows, _ := strings.Cut(a.body, "\n")
			found := []string{strings.Join(strings.Fields(head), " ")} // columns are as wide as their contents
			for row := range strings.Lines(rows) {
				if column >= 0 {
					found = append(found, strings.TrimSpace(strings.Split(row, ",")[column]))
				}
			}
			slices.Sort(found[1:])
			all = append(all, slices.Compact(found))
		})
		if !slices.Equal(all[0], all[1]) {
			t.Errorf("%s has\n%q\nwant\n%q", page, all[1], all[0])
		}
	}
	for _, s := range []*cluster.Server{p.ours.Server, p.theirs.Server} {
		if a := do(t, s.Config(cluster.Bob), http.MethodGet, "/debug/api_priority_and_fairness/dump_queues", ""); a.code != http.StatusForbidden {
			t.Errorf("bob gets %d", a.code)
		}
	}
}
