package apistage_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/catena-dev/catena/sdk/apistage"
	"github.com/catena-dev/catena/sdk/apistage/apitest"
)

// marker does what Kubernetes' plugins for webhooks and policies do: it changes the
// object as clients see it, and converts it back.
type marker struct{ *admission.Handler }

func (marker) Admit(_ context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	versioned, err := o.GetObjectConvertor().ConvertToVersion(a.GetObject(), a.GetKind().GroupVersion())
	if err != nil {
		return err
	}
	versioned = versioned.DeepCopyObject()
	accessor, err := meta.Accessor(versioned)
	if err != nil {
		return err
	}
	accessor.SetLabels(map[string]string{"marked-by": a.GetUserInfo().GetName()})
	return o.GetObjectConvertor().Convert(versioned, a.GetObject(), nil)
}

func (marker) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetName() == "refused" {
		return admission.NewForbidden(a, errors.New("not this one"))
	}
	return nil
}

func TestOwnAdmission(t *testing.T) {
	t.Parallel()
	group := widgets()
	group.Admission = func(*apistage.Setup) ([]admission.Interface, error) {
		return []admission.Interface{marker{admission.NewHandler(admission.Create)}}, nil
	}
	s := serveGroup(t, group, apitest.Store(t))
	made, err := s.client.Create(t.Context(), widget(t, "marked", "spec: {replicas: 1, parts: [{name: a}]}"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if made.GetLabels()["marked-by"] != "alice" || len(at(made, "spec", "parts").([]any)) != 1 {
		t.Errorf("created is %v", made.Object)
	}
	_, err = s.client.Create(t.Context(), widget(t, "refused", "spec: {replicas: 1}"), metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), "not this one") {
		t.Errorf("error is %v", err)
	}
}
