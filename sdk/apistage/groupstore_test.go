package apistage_test

import (
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/catena-dev/catena/sdk/apistage/apitest"
)

// Objects are under the stage's own prefix, as JSON of the stored version, and another
// process of the stage finds them there with their resourceVersions.
func TestStore(t *testing.T) {
	t.Parallel()
	etcd := apitest.Store(t)
	first := serveGroup(t, widgets(), etcd)
	made, err := first.client.Create(t.Context(), widget(t, "kept", "spec: {replicas: 1}"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	const key = "/registry/stages/widgets/widgets.test/widgets/default/kept"
	found, err := client.Get(t.Context(), key)
	if err != nil || len(found.Kvs) != 1 {
		t.Fatalf("%s: %v (%v)", key, found, err)
	}
	if text := string(found.Kvs[0].Value); !strings.HasPrefix(text, `{"kind":"Widget","apiVersion":"widgets.test/v1"`) {
		t.Errorf("stored is %s", text)
	}
	second := serveGroup(t, widgets(), etcd)
	again, err := second.client.Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil || again.GetResourceVersion() != made.GetResourceVersion() {
		t.Errorf("another process has %v (%v)", again, err)
	}
	list, err := first.client.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// A watch of the first process goes on in the second.
	w, err := second.client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if _, err := first.client.Create(t.Context(), widget(t, "seen", "spec: {replicas: 1}"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if event := <-w.ResultChan(); event.Type != "ADDED" {
		t.Errorf("event is %v", event)
	}
}
