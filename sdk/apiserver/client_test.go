package apiserver_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
)

// newClient returns clients of the server with the stage's own identity.
func newClient(env *sdk.Env) (kubernetes.Interface, error) {
	config := &rest.Config{
		Host: "http://catena", // any name: all connections go to the host's socket
		QPS:  -1,              // the server limits its clients
	}
	return kubernetes.NewForConfigAndClient(config, env.Client())
}

// The function in docs/sdk.md is the one that is tested here.
func TestClientOfTheDocs(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile("../../docs/sdk.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("client_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(source), "\n\n// newClient ")
	function, _, ok := strings.Cut(rest, "\n}\n")
	if !ok || !strings.Contains(string(docs), "```go\n// newClient "+function+"\n}\n```\n") {
		t.Errorf("docs/sdk.md has not:\n%s", function)
	}
}

// A stage that is no group has Kubernetes' clients: requests, lists and watches get to the
// host, with the stage's own credential.
func TestClient(t *testing.T) {
	t.Parallel()
	names := make(chan []string, 1)
	stage := stagetest.Start(t, sdk.Stage{Name: "namer", New: func(env *sdk.Env) (http.Handler, error) {
		client, err := newClient(env)
		if err != nil {
			return nil, err
		}
		factory := informers.NewSharedInformerFactory(client, 0)
		namespaces := factory.Core().V1().Namespaces().Lister()
		env.PostStartHook("informers", func(ctx context.Context) error {
			factory.Start(env.Context().Done())
			factory.WaitForCacheSync(ctx.Done())
			names <- await(ctx, func() ([]string, bool) { return namesOf(namespaces.List(labels.Everything())) })
			return nil
		})
		return http.NotFoundHandler(), nil
	}}, stagetest.Options{API: http.HandlerFunc(serveNamespaces)})
	stage.RunPostStartHooks(t)
	if got := strings.Join(<-names, " "); got != "first later" && got != "later first" {
		t.Errorf("the informer has %q, want what was listed and what came then", got)
	}
}

// namesOf returns the names of namespaces, and whether there are two.
func namesOf(list []*corev1.Namespace, err error) (names []string, two bool) {
	for _, n := range list {
		names = append(names, n.Name)
	}
	return names, err == nil && len(names) == 2
}

// await asks until the response is good or ctx ends.
func await(ctx context.Context, ask func() ([]string, bool)) []string {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		got, ok := ask()
		if ok || ctx.Err() != nil {
			return got
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// serveNamespaces is a server with a namespace to begin with and a second one that comes.
func serveNamespaces(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/api/v1/namespaces" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("watch") == "" {
		_ = json.NewEncoder(w).Encode(corev1.NamespaceList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NamespaceList"},
			ListMeta: metav1.ListMeta{ResourceVersion: "1"},
			Items:    []corev1.Namespace{namespace("first", "1")},
		})
		return
	}
	if r.URL.Query().Get("sendInitialEvents") == "true" { // as a server that cannot do it
		w.WriteHeader(http.StatusUnprocessableEntity)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
			Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity,
		})
		return
	}
	later := namespace("later", "2")
	_ = json.NewEncoder(w).Encode(map[string]any{"type": "ADDED", "object": &later})
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

func namespace(name, version string) corev1.Namespace {
	return corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version},
	}
}
