package servedinformers

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// An informer counts as synced if the server says that it does not serve the resource, and not if it does not know.
func TestInformersOfWhatIsNotServed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		core   string // response to discovery of the group version, and its status
		status int
		pods   bool
	}{
		{"another resource of the group version", `{"kind":"APIResourceList","resources":[{"name":"nodes","kind":"Node"}]}`, http.StatusOK, true},
		{"served", `{"kind":"APIResourceList","resources":[{"name":"pods","kind":"Pod"}]}`, http.StatusOK, false},
		{"no group version", "", http.StatusNotFound, true},
		{"incomplete", "", http.StatusServiceUnavailable, false},
		{"no document", "nonsense", http.StatusOK, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch r.URL.Path {
				case "/api/v1":
					w.WriteHeader(c.status)
					w.Write([]byte(c.core))
				default:
					http.NotFound(w, r)
				}
			}))
			defer server.Close()
			client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
			if err != nil {
				t.Fatal(err)
			}
			f := New(informers.NewSharedInformerFactory(client, 0), client.Discovery().RESTClient())
			f.Core().V1().Pods().Informer()
			f.Storage().V1().CSINodes().Informer()
			f.Start(t.Context().Done())
			now := make(chan struct{})
			close(now)
			synced := f.WaitForCacheSync(now)
			if got := synced[reflect.TypeFor[*corev1.Pod]()]; got != c.pods {
				t.Errorf("pods count as synced: %t", got)
			}
			if !synced[reflect.TypeFor[*storagev1.CSINode]()] {
				t.Error("an informer of a group that is not served has not synced")
			}
		})
	}
}

// An informer of what was not served stays synced when it is served.
func TestInformersOfWhatIsServedLater(t *testing.T) {
	t.Parallel()
	var isServed atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1" || !isServed.Load() {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"kind":"APIResourceList","resources":[{"name":"pods","kind":"Pod"}]}`))
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	f := New(informers.NewSharedInformerFactory(client, 0), client.Discovery().RESTClient())
	f.Core().V1().Pods().Informer()
	f.Start(t.Context().Done())
	now := make(chan struct{})
	close(now)
	pods := reflect.TypeFor[*corev1.Pod]()
	for _, is := range []bool{false, true} {
		isServed.Store(is)
		clear(f.(*served).kinds) // which are known for a second
		if !f.WaitForCacheSync(now)[pods] {
			t.Errorf("served %t: the informer has not synced", is)
		}
	}
}
