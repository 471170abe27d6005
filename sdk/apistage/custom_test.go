package apistage_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/discovery"

	"github.com/catena-dev/catena/sdk/apistage"
)

// mirror has an object for each user, which is made when it is asked for.
type mirror struct{ rest.TableConvertor }

func (mirror) New() runtime.Object     { return &Widget{} }
func (mirror) NewList() runtime.Object { return &WidgetList{} }
func (mirror) Destroy()                {}
func (mirror) NamespaceScoped() bool   { return false }
func (mirror) GetSingularName() string { return "widget" }

func (mirror) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	user, ok := request.UserFrom(ctx)
	if !ok || user.GetName() != name {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "widgets"}, name)
	}
	return &Widget{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: WidgetSpec{Color: "clear"}}, nil
}

func (m mirror) List(ctx context.Context, _ *internalversion.ListOptions) (runtime.Object, error) {
	return &WidgetList{}, nil
}

// Storage that only reads makes a resource that can only be read, and needs no store.
func TestCustom(t *testing.T) {
	t.Parallel()
	s := serveGroup(t, apistage.Group{
		Name: "mirrors", APIVersion: "widgets.test/v1", TypeSources: []string{widgetSource},
		Resources: []apistage.Resource{apistage.Custom{
			Object: &Widget{}, List: &WidgetList{}, Plural: "widgets",
			Storage: func(*apistage.Setup) (rest.Storage, error) { return mirror{apistage.Table[*Widget]()}, nil },
		}},
	}, "")
	list, err := discovery.NewDiscoveryClientForConfigOrDie(s.config).ServerResourcesForGroupVersion("widgets.test/v1")
	if err != nil {
		t.Fatal(err)
	}
	if r := list.APIResources; len(r) != 1 || r[0].Namespaced || !slices.Equal(r[0].Verbs, []string{"get", "list"}) {
		t.Errorf("resources are %+v", r)
	}
	if body := s.get(t, "/apis/widgets.test/v1/widgets/alice"); !strings.Contains(body, `"color":"clear"`) {
		t.Errorf("response is %s", body)
	}
	if code, body := s.do(t, http.MethodGet, "/apis/widgets.test/v1/widgets/bob", ""); code != http.StatusNotFound {
		t.Errorf("status %d: %s", code, body)
	}
	if code, body := s.do(t, http.MethodDelete, "/apis/widgets.test/v1/widgets/alice", ""); code != http.StatusMethodNotAllowed {
		t.Errorf("status %d: %s", code, body)
	}
}
