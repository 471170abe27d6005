package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/test/internal/cluster"
)

const gadgetGroup = "gadgets.e2e.example.com"

var gadgets = schema.GroupVersionResource{Group: gadgetGroup, Version: "v1", Resource: "gadgets"}

const gadgetCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.` + gadgetGroup + `}
spec:
  group: ` + gadgetGroup + `
  scope: Namespaced
  names: {plural: gadgets, kind: Gadget}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

// index has the paths of custom resources where there is an aggregator: their APIServices list them, as in kube-apiserver.
const index = "/ application/json"

// gadgetDocuments are those that have the group, as "PATH ACCEPT".
var gadgetDocuments = []string{
	"/apis application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
	"/apis application/json",
	"/apis/" + gadgetGroup + " application/json",
	"/apis/" + gadgetGroup + "/v1 application/json",
	"/openapi/v3 application/json",
	"/openapi/v3/apis/" + gadgetGroup + "/v1 application/json",
	"/openapi/v2 application/json",
}

// startWithGadgets starts a system of the test's own that serves custom resources, in all of its documents.
func startWithGadgets(t *testing.T, o cluster.Options, parts ...func(*system, context.Context) error) *system {
	t.Helper()
	s, err := startSystem(t.Context(), o, parts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(t.Failed()); err != nil {
			t.Error(err)
		}
	})
	s.kubectlAs(t, cluster.Admin).pipe(gadgetCRD, "apply", "-f", "-")
	client, err := rest.HTTPClientFor(s.config)
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range gadgetDocuments {
		eventually(t, document, func(ctx context.Context) error {
			code, body, err := fetch(ctx, client, s.config.Host, document)
			if err == nil && (code != http.StatusOK || !strings.Contains(body, gadgetGroup)) {
				err = fmt.Errorf("status %d, %d bytes", code, len(body))
			}
			return err
		})
	}
	return s
}

func fetch(ctx context.Context, client *http.Client, host, document string) (code int, body string, err error) {
	path, accept, _ := strings.Cut(document, " ")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, host+path, nil)
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Accept", accept)
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// kill kills a stage, and waits until the server is ready with another process of it.
func (s *system) kill(t *testing.T, stage string) {
	t.Helper()
	before := s.Stages()[stage]
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, stage+" is back", func(ctx context.Context) error {
		if now := s.Stages()[stage]; now == 0 || now == before {
			return fmt.Errorf("it has the process %d", now)
		}
		return cluster.Ready(ctx, s.config)
	})
}

// Whichever stage dies, discovery and OpenAPI have all that the server has, or do not respond: what they lack, clients take for gone.
func TestDocumentsStayWhole(t *testing.T) {
	t.Parallel()
	for name, chain := range map[string]struct {
		options cluster.Options
		stages  []string
	}{
		"with the aggregator":    {cluster.Options{}, []string{"extensions", "aggregator"}},
		"without the aggregator": {cluster.Options{Set: []string{"stages.aggregator=null"}}, []string{"extensions", "core"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			documents := gadgetDocuments
			if slices.Contains(chain.stages, "aggregator") {
				documents = append(slices.Clone(documents), index)
			}
			testDocumentsStayWhole(t, startWithGadgets(t, chain.options), chain.stages, documents)
		})
	}
}

func testDocumentsStayWhole(t *testing.T, s *system, stages, documents []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var polls sync.WaitGroup
	read := make([]atomic.Int64, len(documents))
	for i, document := range documents {
		client, err := rest.HTTPClientFor(s.config)
		if err != nil {
			t.Fatal(err)
		}
		polls.Go(func() {
			for ctx.Err() == nil {
				code, body, err := fetch(ctx, client, s.config.Host, document)
				switch {
				case ctx.Err() != nil:
					return
				case err != nil: // its process has died in the middle of the response
					t.Logf("%s: %v", document, err)
				case code == http.StatusNotFound, code == http.StatusOK && !strings.Contains(body, gadgetGroup):
					t.Errorf("%s: %d without the group, in %d bytes", document, code, len(body))
				case code != http.StatusOK:
					t.Logf("%s: %d %.200s", document, code, body)
				}
				if code == http.StatusOK {
					read[i].Add(1)
				}
				time.Sleep(5 * time.Millisecond) // or it would have the whole machine
			}
		})
	}
	for range 6 {
		for _, stage := range stages {
			s.kill(t, stage)
			for i, document := range documents {
				before := read[i].Load()
				eventually(t, document, func(context.Context) error {
					if n := read[i].Load() - before; n < 2 { // one may have begun before
						return fmt.Errorf("read %d times", n)
					}
					return nil
				})
			}
		}
	}
	cancel()
	polls.Wait()
}

// Namespaces that are deleted while the stage of custom resources dies take these with them: kube-controller-manager deletes
// what discovery has.
func TestNamespacesTakeCustomResourcesWithThem(t *testing.T) {
	t.Parallel()
	const namespaces = 24
	s := startWithGadgets(t, cluster.Options{}, func(s *system, _ context.Context) error {
		return s.startDaemon("kube-controller-manager", "--use-service-account-credentials", "--controllers=namespace-controller,serviceaccount-controller",
			"--root-ca-file="+s.pki("ca.crt"), "--service-account-private-key-file="+s.pki("sa.key"))
	})
	objects, err := dynamic.NewForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, client := t.Context(), s.client.CoreV1().Namespaces()
	name := func(i int) string { return fmt.Sprintf("gadgets-%d", i) }
	for i := range namespaces {
		if _, err := client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name(i)}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		gadget := &unstructured.Unstructured{Object: map[string]any{"apiVersion": gadgetGroup + "/v1", "kind": "Gadget", "metadata": map[string]any{"name": "one"}}}
		if _, err := objects.Resource(gadgets).Namespace(name(i)).Create(ctx, gadget, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range namespaces {
		if err := client.Delete(ctx, name(i), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	left := func(ctx context.Context) int {
		list, err := client.List(ctx, metav1.ListOptions{})
		if err != nil {
			return -1
		}
		n := 0
		for _, ns := range list.Items {
			if strings.HasPrefix(ns.Name, "gadgets-") {
				n++
			}
		}
		return n
	}
	eventually(t, "the first namespace is gone", func(ctx context.Context) error {
		if n := left(ctx); n == namespaces || n < 0 {
			return fmt.Errorf("%d namespaces", n)
		}
		return nil
	})
	s.kill(t, "extensions")
	eventually(t, "all namespaces are gone", func(ctx context.Context) error {
		if n := left(ctx); n != 0 {
			return fmt.Errorf("%d namespaces", n)
		}
		return nil
	})
	list, err := objects.Resource(gadgets).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, gadget := range list.Items {
		t.Errorf("%s/%s has outlived its namespace", gadget.GetNamespace(), gadget.GetName())
	}
}
