package apistage_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/catena-dev/catena/sdk/apistage/apitest"
	"github.com/catena-dev/catena/sdk/apistage/deepcopy"
)

// OldWidget is a Widget as it was in v1beta1: everything at the top.
type OldWidget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Colour            string `json:"colour,omitempty"`
	Count             int32  `json:"count"`
}

// OldWidgetList is a list of them.
type OldWidgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []OldWidget `json:"items"`
}

func (w *OldWidget) DeepCopyObject() runtime.Object     { return deepcopy.Of(w) }
func (l *OldWidgetList) DeepCopyObject() runtime.Object { return deepcopy.Of(l) }

// addVersions registers two versions without an internal one: v1 stands for it.
func addVersions(scheme *runtime.Scheme) error {
	group := schema.GroupVersion{Group: "widgets.test"}
	v1, v1beta1 := group, group
	v1.Version, v1beta1.Version = "v1", "v1beta1"
	scheme.AddKnownTypes(v1, &Widget{}, &WidgetList{})
	scheme.AddKnownTypeWithName(v1beta1.WithKind("Widget"), &OldWidget{})
	scheme.AddKnownTypeWithName(v1beta1.WithKind("WidgetList"), &OldWidgetList{})
	metav1.AddToGroupVersion(scheme, v1beta1)
	upgrade := func(from *OldWidget, to *Widget) {
		to.ObjectMeta, to.Spec.Color, to.Spec.Replicas = from.ObjectMeta, from.Colour, from.Count
	}
	downgrade := func(from *Widget, to *OldWidget) {
		to.ObjectMeta, to.Colour, to.Count = from.ObjectMeta, from.Spec.Color, from.Spec.Replicas
	}
	for _, add := range []error{
		scheme.AddConversionFunc((*OldWidget)(nil), (*Widget)(nil), func(from, to any, _ conversion.Scope) error {
			upgrade(from.(*OldWidget), to.(*Widget))
			return nil
		}),
		scheme.AddConversionFunc((*Widget)(nil), (*OldWidget)(nil), func(from, to any, _ conversion.Scope) error {
			downgrade(from.(*Widget), to.(*OldWidget))
			return nil
		}),
		scheme.AddConversionFunc((*WidgetList)(nil), (*OldWidgetList)(nil), func(from, to any, _ conversion.Scope) error {
			list, out := from.(*WidgetList), to.(*OldWidgetList)
			out.ListMeta, out.Items = list.ListMeta, make([]OldWidget, len(list.Items))
			for i := range list.Items {
				downgrade(&list.Items[i], &out.Items[i])
			}
			return nil
		}),
		scheme.SetVersionPriority(v1, v1beta1),
	} {
		if add != nil {
			return add
		}
	}
	return nil
}

func TestVersions(t *testing.T) {
	t.Parallel()
	group := widgets()
	group.AddToScheme = addVersions
	s := serveGroup(t, group, apitest.Store(t))
	const path = "/apis/widgets.test/v1beta1/namespaces/default/widgets"
	code, body := s.do(t, http.MethodPost, path, `{"apiVersion":"widgets.test/v1beta1","kind":"Widget","metadata":{"name":"old"},"colour":"blue","count":2}`, "Content-Type", "application/json")
	if code != http.StatusCreated || !strings.Contains(body, `"apiVersion":"widgets.test/v1beta1"`) || !strings.Contains(body, `"colour":"blue"`) {
		t.Fatalf("status %d: %s", code, body)
	}
	o, err := s.client.Get(t.Context(), "old", metav1.GetOptions{})
	if err != nil || at(o, "spec", "color") != "blue" || at(o, "spec", "replicas") != int64(2) {
		t.Errorf("as v1 it is %v (%v)", o, err)
	}
	code, body = s.do(t, http.MethodPatch, path+"/old?fieldManager=me", `{"apiVersion":"widgets.test/v1beta1","kind":"Widget","count":3}`, "Content-Type", "application/apply-patch+yaml")
	if code != http.StatusConflict {
		t.Errorf("apply of another's field: status %d: %s", code, body)
	}
	code, body = s.do(t, http.MethodPatch, path+"/old?fieldManager=me&force=true", `{"apiVersion":"widgets.test/v1beta1","kind":"Widget","count":3}`, "Content-Type", "application/apply-patch+yaml")
	if code != http.StatusOK || !strings.Contains(body, `"count":3`) {
		t.Errorf("apply: status %d: %s", code, body)
	}
	if body := s.get(t, path); !strings.Contains(body, `"kind":"WidgetList","apiVersion":"widgets.test/v1beta1"`) || !strings.Contains(body, `"count":3`) {
		t.Errorf("list is %s", body)
	}
	// What the old version lets out is a default of the hub.
	code, body = s.do(t, http.MethodPost, path, `{"apiVersion":"widgets.test/v1beta1","kind":"Widget","metadata":{"name":"invalid"},"count":-2}`, "Content-Type", "application/json")
	if code != http.StatusUnprocessableEntity {
		t.Errorf("status %d: %s", code, body)
	}
}

const encryption = `
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [widgets.widgets.test]
  providers:
  - aesgcm: {keys: [{name: key1, secret: c2VjcmV0IGlzIHNlY3VyZQ==}]}
`

// The operator's configuration of encryption is for the kinds of stages too.
func TestEncryption(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	if err := os.WriteFile(file, []byte(encryption), 0o600); err != nil {
		t.Fatal(err)
	}
	etcd := apitest.Store(t)
	s := serveGroup(t, widgets(), etcd, "encryption-provider-config="+file)
	if _, err := s.client.Create(t.Context(), widget(t, "hidden", "spec: {replicas: 1}"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	found, err := client.Get(t.Context(), "/registry/stages/widgets/", clientv3.WithPrefix())
	if err != nil || len(found.Kvs) != 1 {
		t.Fatalf("%v (%v)", found, err)
	}
	if text := string(found.Kvs[0].Value); !strings.HasPrefix(text, "k8s:enc:aesgcm:v1:key1:") {
		t.Errorf("stored is %q", text)
	}
}
