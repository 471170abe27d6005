package e2e

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// An extension API server works through the aggregator, and its death is its own.
func TestAggregation(t *testing.T) {
	t.Parallel()
	s, err := startSystem(t.Context(), cluster.Options{}, (*system).startControllers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(t.Failed()); err != nil {
			t.Error(err)
		}
	})
	k := s.kubectl(t)
	w := startWardle(t, s, k)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("sample-apiserver:\n%s", cluster.Tail(w.process.Log, 20))
		}
	})
	for _, step := range []struct {
		name string
		test func(*kubectl)
	}{
		{"objects", aggregatedObjects},
		{"identity", s.aggregatedIdentity},
		{"discovery", aggregatedDiscovery},
		{"documents", aggregatedDocuments},
		{"one hop", s.oneHop},
		{"killed", w.killed},
		{"again", w.again},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.test(k.in(t)) }) {
			return
		}
	}
}

func aggregatedObjects(k *kubectl) {
	watch := k.start("get", "flunders", "--watch", "--output-watch-events", "-o", `jsonpath={.type} {.object.metadata.name} {.object.spec.reference}{"\n"}`, "-v=6")
	watch.skipTo("watch=true")
	if got := k.pipe(flunder("f", "one"), "apply", "-f", "-"); got != "flunder.wardle.example.com/f created" {
		k.t.Errorf("apply prints %q", got)
	}
	watch.skipTo("ADDED f one")
	k.pipe(flunder("f", "two"), "apply", "--server-side", "--force-conflicts", "-f", "-")
	watch.skipTo("MODIFIED f two")
	k.contains("get", k.run("get", "flunders"), "NAME", "CREATED AT", "f ")
	k.equal("two", "get", "flunders.v1beta1."+wardleGroup, "f", "-o", "jsonpath={.spec.flunderReference}")
	k.run("patch", "flunder", "f", "--type=merge", "-p", `{"metadata":{"labels":{"l":"1"}}}`)
	k.equal("flunder.wardle.example.com/f", "get", "flunders", "-l", "l=1", "-o", "name")
	k.pipe(flunder("g", "three"), "create", "-f", "-")
	k.run("delete", "flunder", "g")
	watch.skipTo("DELETED g three")
	// Its own admission plugin, and its own errors.
	k.pipe("apiVersion: wardle.example.com/v1alpha1\nkind: Fischer\nmetadata: {name: strict}\ndisallowedFlunders: [banned]\n", "create", "-f", "-")
	eventuallyPrints(k, func(out string) bool { return strings.Contains(out, "this name may not be used") }, "create", "--dry-run=server", "-f", k.file(flunder("banned", "x")))
	k.run("delete", "fischer", "strict")
	k.fail("", []string{"get", "flunder", "none"}, `flunders.wardle.example.com "none" not found`)
}

// The extension server sees the caller, not the aggregator: it asks itself what alice may.
func (s *system) aggregatedIdentity(k *kubectl) {
	alice := k.with(s.users[cluster.Alice])
	alice.fail("", []string{"get", "flunders"}, `User "alice" cannot list resource "flunders"`)
	k.run("create", "role", "reader", "--verb=list", "--resource=flunders.wardle.example.com")
	k.run("create", "rolebinding", "reader", "--role=reader", "--group=devs")
	eventuallyPrints(alice, func(out string) bool { return strings.HasPrefix(out, "flunder.wardle.example.com/f\n") }, "get", "flunders", "-o", "name")
	alice.fail("", []string{"delete", "flunder", "f"}, `User "alice" cannot delete resource "flunders"`)
}

func aggregatedDiscovery(k *kubectl) {
	k.contains("api-resources", k.run("api-resources", "--api-group="+wardleGroup), "fischers", "flunders")
	k.contains("api-versions", k.run("api-versions"), wardleGroup+"/v1alpha1", wardleGroup+"/v1beta1", "apps/v1")
	k.contains("the group", k.run("get", "--raw", "/apis/"+wardleGroup), `"preferredVersion":{"groupVersion":"wardle.example.com/v1alpha1"`)
	k.contains("the legacy list", k.run("get", "--raw", "/apis"), `"name":"wardle.example.com"`, `"name":"apps"`)
	k.contains("the version", k.run("get", "--raw", "/apis/"+wardleGroup+"/v1alpha1"), `"kind":"APIResourceList"`, `"name":"flunders"`)
}

func aggregatedDocuments(k *kubectl) {
	pollKubectl(k, []string{"KIND:       Flunder", "FIELD: spec <FlunderSpec>"}, "explain", "flunders.spec")
	pollKubectl(k, []string{"KIND:     Flunder"}, "explain", "flunders", "--output=plaintext-openapiv2")
	k.contains("/openapi/v3", k.run("get", "--raw", "/openapi/v3"), `"apis/wardle.example.com/v1alpha1"`, `"apis/apps/v1"`)
	k.contains("its document", k.run("get", "--raw", "/openapi/v3/apis/"+wardleGroup+"/v1alpha1"), `"/apis/wardle.example.com/v1alpha1/flunders"`, `"kind":"Flunder"`)
}

// Requests to core go to core, past the aggregator upstream of it; those to the
// extension server go to the aggregator alone. The controllers go on meanwhile, which a
// slow machine gives time for many requests of their own: hence the attempts.
func (s *system) oneHop(k *kubectl) {
	const attempts = 5
	var wrong []string
	for range attempts {
		if wrong = s.wrongHops(k); len(wrong) == 0 {
			return
		}
	}
	k.t.Errorf("in each of %d attempts, as in the last: %s", attempts, strings.Join(wrong, "; "))
}

// wrongHops makes requests and says which stages did not see as many of them as they should.
func (s *system) wrongHops(k *kubectl) (wrong []string) {
	k.t.Helper()
	const requests = 300
	before := s.hops(k)
	for range requests {
		if _, err := s.client.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/default").DoRaw(k.t.Context()); err != nil {
			k.t.Fatal(err)
		}
	}
	between := s.hops(k)
	for range requests {
		if _, err := s.client.CoreV1().RESTClient().Get().AbsPath("/apis/" + wardleGroup + "/v1alpha1/flunders").DoRaw(k.t.Context()); err != nil {
			k.t.Fatal(err)
		}
	}
	after := s.hops(k)
	for _, c := range []struct {
		stage            string
		toCore, toWardle bool
	}{{"aggregator", false, true}, {"core", true, false}, {"extensions", false, false}} {
		for what, want := range map[string]bool{"core": c.toCore, "wardle": c.toWardle} {
			got := between[c.stage] - before[c.stage]
			if what == "wardle" {
				got = after[c.stage] - between[c.stage]
			}
			if (got >= requests) != want || got > requests*3/2 || (!want && got > requests/2) {
				wrong = append(wrong, fmt.Sprintf("%d requests to %s make %d hops to the stage %s", requests, what, got, c.stage))
			}
		}
	}
	return wrong
}

// hops are the values of catena_relay_hops_total, over all outcomes, by stage.
func (s *system) hops(k *kubectl) map[string]int {
	k.t.Helper()
	hops := map[string]int{}
	lines := bufio.NewScanner(strings.NewReader(k.run("get", "--raw", "/metrics")))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		labels, ok := strings.CutPrefix(lines.Text(), "catena_relay_hops_total{")
		if !ok {
			continue
		}
		labels, value, _ := strings.Cut(labels, "} ")
		_, stage, _ := strings.Cut(labels, `stage="`)
		stage, _, _ = strings.Cut(stage, `"`)
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			k.t.Fatal(err)
		}
		hops[stage] += int(n)
	}
	if len(hops) == 0 {
		k.t.Fatal("/metrics has no catena_relay_hops_total")
	}
	return hops
}

// killed is what works, and what does not, while the extension server is dead.
func (w *wardle) killed(k *kubectl) {
	w.process.Kill()
	k.run("wait", "--for=condition=Available=false", "apiservice/v1alpha1."+wardleGroup, patiently)
	k.fail("", []string{"get", "flunders"}, "the server is currently unable to handle the request")
	k.run("get", "namespaces,deployments,crds")
	// Discovery has all the rest, and says what is missing.
	eventuallyPrints(k, func(out string) bool { return !strings.Contains(out, "flunders") }, "api-resources", "-o", "name", "--cached=false")
	k.contains("api-resources", k.run("api-resources", "-o", "name"),
		"pods\n", "deployments.apps\n", "customresourcedefinitions.apiextensions.k8s.io\n", "apiservices.apiregistration.k8s.io\n")
	document, err := w.system.client.CoreV1().RESTClient().Get().AbsPath("/apis").
		SetHeader("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList").DoRaw(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	k.contains("discovery", string(document), `{"version":"v1alpha1","freshness":"Stale"}`)
	kind := createKind(k, "Survivor", "survivors")
	k.pipe(kind.object("s", 1), "create", "-f", "-")
	pollKubectl(k, []string{"How large it is."}, "explain", "survivors.spec.size")
	w.namespaceDeletion(k)
}

// As with kube-apiserver, a namespace is emptied of what can be reached, and waits for
// what cannot: there might be something in it. It goes when the group is back.
func (w *wardle) namespaceDeletion(k *kubectl) {
	doomed := k.in(k.t)
	doomed.namespace = k.namespace + "-doomed"
	k.run("create", "namespace", doomed.namespace)
	doomed.run("create", "configmap", "c")
	k.run("delete", "namespace", doomed.namespace, "--wait=false")
	doomed.run("wait", "--for=delete", "configmap/c", patiently)
	k.run("wait", "--for=condition=NamespaceDeletionDiscoveryFailure", "namespace/"+doomed.namespace, patiently)
}

// again is the return of the extension server, with what it had stored.
func (w *wardle) again(k *kubectl) {
	w.start(k.t)
	w.await(k.t, k)
	k.equal("two", "get", "flunder", "f", "-o", "jsonpath={.spec.reference}")
	k.run("wait", "--for=delete", "namespace/"+k.namespace+"-doomed", patiently)
	// A namespace that is deleted takes the objects of the extension server along.
	doomed := k.in(k.t)
	doomed.namespace = k.namespace + "-again"
	k.run("create", "namespace", doomed.namespace)
	doomed.pipe(flunder("f", "x"), "create", "-f", "-")
	k.run("delete", "namespace", doomed.namespace)
	eventually(k.t, "all flunders but one have gone", func(context.Context) error {
		if got := k.run("get", "flunders", "-A", "-o", "name"); got != "flunder.wardle.example.com/f" {
			return fmt.Errorf("there are %s", got)
		}
		return nil
	})
	// Without the APIServices the group is gone at once.
	k.run("delete", "apiservice", "v1alpha1."+wardleGroup, "v1beta1."+wardleGroup)
	eventuallyPrints(k, func(out string) bool { return !strings.Contains(out, wardleGroup) }, "get", "--raw", "/apis")
	eventuallyPrints(k, func(out string) bool { return strings.Contains(out, "could not find the requested resource") },
		"get", "--raw", "/apis/"+wardleGroup+"/v1alpha1/flunders")
}
