package system

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// listPolicy has an event of each list.
const listPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [list, watch]
- level: None
`

// informed are resources that informers watch: those of all stages, most of which nobody changes.
var informed = []string{
	"configmaps.v1", "secrets.v1", "services.v1", "pods.v1", "nodes.v1", "namespaces.v1", "serviceaccounts.v1", "endpoints.v1",
	"persistentvolumes.v1", "limitranges.v1", "resourcequotas.v1", "replicationcontrollers.v1", "deployments.v1.apps",
	"replicasets.v1.apps", "jobs.v1.batch",
	"roles.v1.rbac.authorization.k8s.io", "networkpolicies.v1.networking.k8s.io", "customresourcedefinitions.v1.apiextensions.k8s.io",
	"apiservices.v1.apiregistration.k8s.io", "widgets.v1.relist.example.com",
}

const relistDefinition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.relist.example.com}
spec:
  group: relist.example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// Clients that watch do not list anew when the process that served them is replaced or dies, whoever they are: those of
// the test, and the stages' own informers.
func TestNobodyListsAnew(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "audit.log")
	const drainSpread = 5 * time.Second // by default
	flags := map[string]string{"audit-policy-file": write(t, "policy.yaml", listPolicy), "audit-log-path": log}
	c := catena(t, cluster.Options{Flags: flags})
	kubectl(t, c.Server, "apply", "-f", write(t, "crd.yaml", relistDefinition))
	kubectl(t, c.Server, "wait", "--for=condition=Established", "crd/widgets.relist.example.com", "--timeout=60s")
	config := c.Config(cluster.Admin)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := startInformers(ctx, t, c, 3)
	client := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(metav1.NamespaceDefault)
	marked := 0
	// mark waits until all informers have an object that was just made.
	mark := func() {
		t.Helper()
		marked++
		name := fmt.Sprint("mark-", marked)
		eventually(t, "a ConfigMap is created", func() bool {
			o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
			_, err := client.Create(ctx, o, metav1.CreateOptions{})
			return err == nil
		})
		eventually(t, "the informers see "+name, func() bool { return seen(name) })
	}
	// grow waits until all watches have begun again, and are more than a second old: client-go lists anew if one ends
	// before that.
	grow := func() {
		t.Helper()
		from := time.Now()
		eventually(t, "the watches have grown", func() bool { return time.Since(from) > drainSpread+1500*time.Millisecond })
	}
	mark()
	grow()
	settled := time.Now()
	for _, stage := range []string{"core", "extensions", "aggregator"} {
		if err := c.Swap(t.Context(), stage); err != nil {
			t.Fatal(err)
		}
		mark()
		grow()
		before := c.Stages()[stage]
		if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the stage has another process", func() bool { now := c.Stages()[stage]; return now != 0 && now != before })
		mark()
		grow()
	}
	for _, l := range listsSince(t, log, settled) {
		t.Error(l)
	}
}

// startInformers starts clients with an informer for each resource, waits until they are in sync, and returns what
// reports whether all of them have a ConfigMap.
func startInformers(ctx context.Context, t *testing.T, c *cluster.Catena, clients int) (seen func(name string) bool) {
	t.Helper()
	var factories []dynamicinformer.DynamicSharedInformerFactory
	for range clients {
		config := c.Config(cluster.Admin)
		config.UserAgent = "informers"
		f := dynamicinformer.NewDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(config), 0)
		for _, name := range informed {
			resource, group := schema.ParseResourceArg(name)
			if resource == nil {
				resource = &schema.GroupVersionResource{Version: group.Group, Resource: group.Resource}
			}
			f.ForResource(*resource).Informer()
		}
		f.Start(ctx.Done())
		for resource, synced := range f.WaitForCacheSync(ctx.Done()) {
			if !synced {
				t.Fatalf("the informer of %s is not in sync", resource)
			}
		}
		factories = append(factories, f)
	}
	return func(name string) bool {
		for _, f := range factories {
			lister := f.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps")).Lister().ByNamespace(metav1.NamespaceDefault)
			if _, err := lister.Get(name); err != nil {
				return false
			}
		}
		return true
	}
}

// listsSince returns the lists in an audit log, and the watches that begin with all objects, since a time.
func listsSince(t *testing.T, log string, since time.Time) (lists []string) {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Stage, Verb, RequestURI, UserAgent string
			User                               struct{ Username string }
			RequestReceivedTimestamp           time.Time
			ResponseStatus                     struct{ Code int }
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if e.RequestReceivedTimestamp.Before(since) || e.Stage == "ResponseStarted" {
			continue
		}
		initial := e.Verb == "list" || strings.Contains(e.RequestURI, "sendInitialEvents=true")
		// The informers of a new process have no revision yet.
		ofNewProcess := strings.HasPrefix(e.User.Username, "system:") && !strings.Contains(e.RequestURI, "resourceVersion=")
		if initial && !ofNewProcess {
			lists = append(lists, fmt.Sprintf("%s %s %s by %s (%s): %d", e.RequestReceivedTimestamp.Format("05.000"),
				e.Verb, e.RequestURI, e.User.Username, e.UserAgent, e.ResponseStatus.Code))
		}
	}
	return lists
}
