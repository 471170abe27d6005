package auditheader

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRestrictAnnotations(t *testing.T) {
	t.Parallel()
	const own, any, kubernetes, never = "own", "any", "kubernetes", "never"
	keys := map[string]string{
		"mid.stage.catena.dev/why": own,

		"example.com/why": any, "policies.example/warn": any,

		"pod-security.kubernetes.io/enforce-policy": kubernetes, "validation.policy.admission.k8s.io/validation_failure": kubernetes,
		"k8s.io/deprecated": kubernetes, "kubernetes.io/x": kubernetes, "K8S.io/x": kubernetes, "k8s.io./x": kubernetes, "k8s\u0456.io/x": kubernetes,
		" k8s.io/x": kubernetes, "no-domain": kubernetes, "/x": kubernetes, "notes/note": any,

		"rewrite.catena.dev/core": never, "catena.dev/x": never, "core.stage.catena.dev/x": never, "x.mid.stage.catena.dev/y": never, "Rewrite.Catena.dev/core": never,
		"authorization.k8s.io/decision": never, "apiserver.latency.k8s.io/total": never, "Authorization.k8s.io/decision": never,
	}
	p := Part{Annotations: map[string]string{}}
	for key := range keys {
		p.Annotations[key] = "v"
	}
	for _, tc := range []struct {
		serves, kubernetes bool
		want               []string
	}{
		{false, false, []string{own}}, {false, true, []string{own}},
		{true, false, []string{own, any}}, {true, true, []string{own, any, kubernetes}},
	} {
		allowed, dropped := p.Restrict("mid", tc.serves, tc.kubernetes)
		for key, class := range keys {
			_, got := allowed.Annotations[key]
			if want := slices.Contains(tc.want, class); got != want || slices.Contains(dropped, key) == want {
				t.Errorf("serves %t, Kubernetes' %t: %q is allowed: %t", tc.serves, tc.kubernetes, key, got)
			}
		}
	}
	if len(p.Annotations) != len(keys) {
		t.Error("the part itself has changed")
	}
}

func TestRestrictMembers(t *testing.T) {
	t.Parallel()
	p := Part{
		Annotations: map[string]string{"a.stage.catena.dev/x": ""}, ObjectRef: &ObjectRef{Name: "n"}, RequestObject: json.RawMessage("1"),
		ResponseObject: json.RawMessage("2"), ResponseStatus: &metav1.Status{},
	}
	if got, dropped := p.Restrict("a", true, false); len(dropped) > 0 || got.ObjectRef == nil || got.RequestObject == nil || got.ResponseObject == nil || got.ResponseStatus == nil {
		t.Errorf("served: %+v, without %q", got, dropped)
	}
	got, dropped := p.Restrict("a", false, true)
	if want := []string{"objectRef", "requestObject", "responseObject", "responseStatus"}; !slices.Equal(dropped, want) ||
		got.ObjectRef != nil || got.RequestObject != nil || got.ResponseObject != nil || got.ResponseStatus != nil || !maps.Equal(got.Annotations, p.Annotations) {
		t.Errorf("not served: %+v, without %q", got, dropped)
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	p := Part{Annotations: map[string]string{"a": "12345", "b": "1234567890", "c": "1"}}
	if dropped := p.Cut(8); !slices.Equal(dropped, []string{"b", "c"}) || len(p.Annotations) != 1 {
		t.Errorf("without %q: %q", dropped, p.Annotations)
	}
	if dropped := p.Cut(6); dropped != nil {
		t.Errorf("what fits is left out: %q", dropped)
	}
}
