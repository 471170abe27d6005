package system

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// whale may do everything, within a few seats of its own.
const whale = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: whale}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: whale}]
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: whale}
spec:
  type: Limited
  limited: {nominalConcurrencyShares: 20, limitResponse: {type: Queue, queuing: {queues: 1, handSize: 1, queueLengthLimit: 1000}}}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: whale}
spec:
  priorityLevelConfiguration: {name: whale}
  matchingPrecedence: 100
  rules:
  - subjects: [{kind: User, user: {name: whale}}]
    resourceRules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"], clusterScope: true, namespaces: ["*"]}]
`

const asWhale = "Impersonate-User: whale"

// setWhaleFree waits until the whale has its rights and its seats.
func setWhaleFree(t *testing.T, l *long) {
	t.Helper()
	apply(t, l.Server, whale)
	awaitLevel(t, l.Server, "whale", asWhale)
}

// awaitLevel waits until a user has the rights and the flow schema that are meant for it.
func awaitLevel(t *testing.T, s *cluster.Server, schema, as string) {
	t.Helper()
	uid := kubectl(t, s, "get", "flowschema", schema, "-o", "jsonpath={.metadata.uid}")
	eventually(t, "the flow schema "+schema, func() bool {
		a := do(t, s.Config(cluster.Admin), http.MethodGet, "/api/v1/namespaces", "", as)
		return a.code == 200 && a.header.Get("X-Kubernetes-Pf-Flowschema-Uid") == uid
	})
}

// A watch gives its seat back once it has begun.
func TestCarriedWatchInitialized(t *testing.T) {
	t.Parallel()
	l := theLong(t)
	setWhaleFree(t, l)
	const watches = 200 // more than there are seats
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	begun := make(chan error, watches)
	client := httpClient(t, l.Config(cluster.Admin))
	for i := range watches {
		wg.Go(func() {
			begun <- watchOnce(ctx, client, fmt.Sprintf("%s/api/v1/namespaces/default/configmaps?watch=1&labelSelector=n%%3D%d", l.URL, i))
		})
	}
	for range watches {
		if err := <-begun; err != nil {
			t.Fatal(err)
		}
	}
	seats := func() float64 {
		return counter(t, l.Config(cluster.Admin), "apiserver_flowcontrol_current_executing_seats", `flow_schema="whale"`)
	}
	eventually(t, "the watches occupy no seat", func() bool { return seats() == 0 }, func() string {
		return fmt.Sprintf("%d watches occupy %v seats", watches, seats())
	})
	if n := counter(t, l.Config(cluster.Admin), "apiserver_flowcontrol_dispatched_requests_total", `flow_schema="whale"`); n < watches {
		t.Errorf("%v requests were dispatched in the flow that is looked at", n)
	}
	cancel()
	wg.Wait()
}

// A watch whose client announces a body and sends only the beginning of it gives its seat
// back too: the body of a watch is not waited for.
func TestWatchWithSlowBody(t *testing.T) { // not while another test uses the whale
	l := theLong(t)
	setWhaleFree(t, l)
	admin := l.Config(cluster.Admin)
	const watches = 200 // more than there are seats
	dispatched := func() float64 {
		return counter(t, admin, "apiserver_flowcontrol_dispatched_requests_total", `flow_schema="whale"`)
	}
	seats := func() float64 {
		return counter(t, admin, "apiserver_flowcontrol_current_executing_seats", `flow_schema="whale"`)
	}
	before := dispatched()
	for range watches {
		conn := dial(t, l.Server)
		defer conn.Close()
		conn.send("GET /api/v1/namespaces/default/configmaps?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin-token\r\n" +
			asWhale + "\r\nContent-Length: 1000\r\n\r\n0")
	}
	eventually(t, "all watches have had a seat, and have given it back", func() bool {
		return dispatched()-before >= watches && seats() == 0
	}, func() string {
		return fmt.Sprintf("%v of %d watches had a seat, %v have it", dispatched()-before, watches, seats())
	})
}

// watchOnce returns when the watch has begun. It goes on until ctx ends.
func watchOnce(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header = headerOf([]string{asWhale})
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	go func() {
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
	}()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("watch: %s", resp.Status)
	}
	return nil
}

// The host knows how much a LIST is going to cost, from what the stages have stored.
func TestCarriedObjectCounts(t *testing.T) { // not while another test uses the whale
	l := theLong(t)
	setWhaleFree(t, l)
	admin := l.Config(cluster.Admin)
	const path = "/api/v1/namespaces/default/podtemplates"
	cost := func() float64 {
		seats := func() float64 {
			return counter(t, admin, "apiserver_flowcontrol_work_estimated_seats_sum", `flow_schema="whale"`)
		}
		before := seats()
		if a := do(t, admin, http.MethodGet, path, "", asWhale); a.code != 200 {
			t.Fatalf("list: %d %s", a.code, a.body)
		}
		return seats() - before
	}
	for range 4 {
		body := fmt.Sprintf(`{"metadata": {"generateName": "large-", "annotations": {"a": %q}}, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}`,
			strings.Repeat("x", 250_000))
		if a := do(t, admin, http.MethodPost, path, body); a.code != 201 {
			t.Fatalf("create: %d %s", a.code, a.body)
		}
	}
	eventually(t, "a list of a megabyte costs five seats or more", func() bool { return cost() >= 5 }, func() string {
		return fmt.Sprintf("it costs %v", cost())
	})
}

// What a stage writes into a watch is flushed at once, bookmarks and all.
func TestCarriedEvents(t *testing.T) {
	t.Parallel()
	l := theLong(t)
	resp := send(t, l.Config(cluster.Admin), http.MethodGet,
		"/api/v1/namespaces/default/serviceaccounts?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "", nil)
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatalf("%s: no bookmark after the initial events: %v", resp.Status, err)
		}
		if strings.Contains(line, `"k8s.io/initial-events-end":"true"`) {
			return
		}
	}
}
