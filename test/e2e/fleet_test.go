package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/catena-dev/catena/sdk/apistage"
	"github.com/catena-dev/catena/sdk/apistage/deepcopy"
	"github.com/catena-dev/catena/test/internal/cluster"
)

// Fleet is a kind with what CRDs can express and what they cannot.
type Fleet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              FleetSpec   `json:"spec"`
	Status            FleetStatus `json:"status,omitempty"`
}

type FleetSpec struct {
	Replicas int32 `json:"replicas"`
}

type FleetStatus struct {
	Replicas   int32              `json:"replicas,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

type FleetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Fleet `json:"items"`
}

// Recall is what the verb recall takes.
type Recall struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Reason            string `json:"reason"`
}

func (f *Fleet) DeepCopyObject() runtime.Object     { return deepcopy.Of(f) }
func (l *FleetList) DeepCopyObject() runtime.Object { return deepcopy.Of(l) }
func (r *Recall) DeepCopyObject() runtime.Object    { return deepcopy.Of(r) }

func fleetGroup() apistage.Group {
	return apistage.Group{
		Name: "fleet", APIVersion: "fleets.test/v1", Types: []runtime.Object{&Recall{}},
		Resources: []apistage.Resource{apistage.Kind[*Fleet]{
			List: &FleetList{}, Status: true, ShortNames: []string{"flt"}, Categories: []string{"all"},
			Columns: []apistage.Column[*Fleet]{{Name: "Replicas", Type: "integer", Value: func(f *Fleet) any { return int64(f.Spec.Replicas) }}},
			Scale: &apistage.Scale[*Fleet]{
				Replicas: func(f *Fleet) *int32 { return &f.Spec.Replicas },
				Current:  func(f *Fleet) (int32, string) { return f.Status.Replicas, "fleet=" + f.Name },
			},
			Subresources: map[string]apistage.Subresource{
				"recall": apistage.Action(recall),
				"echo": apistage.Connect(func(call apistage.Call[*Fleet], w http.ResponseWriter, r *http.Request) {
					fmt.Fprintf(w, "%s: ", call.Object.Name)
					_, _ = io.Copy(w, r.Body)
				}, http.MethodGet, http.MethodPost),
			},
		}},
	}
}

func recall(ctx context.Context, call apistage.Call[*Fleet], in *Recall, options *metav1.CreateOptions) (runtime.Object, error) {
	f := call.Object
	f.Spec.Replicas = 0
	metav1.SetMetaDataAnnotation(&f.ObjectMeta, "recalled", in.Reason)
	changed, _, err := call.Store.Update(ctx, f.Name, apistage.Replace(f), nil, nil, false, &metav1.UpdateOptions{DryRun: options.DryRun})
	return changed, err
}

func fleet(name string, replicas int) string {
	return fmt.Sprintf("apiVersion: fleets.test/v1\nkind: Fleet\nmetadata: {name: %s}\nspec: {replicas: %d}\n", name, replicas)
}

func groupFleet(t *testing.T, g *groups, k *kubectl) {
	k.pipe(fleet("north", 1), "apply", "--server-side", "-f", "-")
	k.run("scale", "fleet", "north", "--replicas=5")
	k.equal("5", "get", "flt", "north", "-o", "jsonpath={.spec.replicas}")
	k.equal("5 fleet=north", "get", "fleet", "north", "--subresource=scale", "-o", "jsonpath={.spec.replicas} {.status.selector}")
	k.fail(fleet("north", 1), []string{"apply", "--server-side", "-f", "-"}, "conflict", ".spec.replicas")

	k.run("patch", "fleet", "north", "--subresource=status", "--type=merge", "-p",
		`{"status":{"replicas":5,"conditions":[{"type":"Ready","status":"True","reason":"x","message":"","lastTransitionTime":"2024-01-01T00:00:00Z"}]},"spec":{"replicas":77}}`)
	k.run("wait", "fleet/north", "--for=condition=Ready", patiently)
	k.equal("5 2", "get", "fleet", "north", "-o", "jsonpath={.spec.replicas} {.metadata.generation}")
	k.contains("get all", k.run("get", "all"), "fleet.fleets.test/north")
	k.contains("describe", k.run("describe", "fleet", "north"), "Kind:         Fleet", "Type:                  Ready")

	path := "/apis/fleets.test/v1/namespaces/default/fleets/north/"
	file := k.file(`{"apiVersion":"fleets.test/v1","kind":"Recall","reason":"storm"}`)
	k.contains("the answer of the verb", k.run("create", "--raw", path+"recall", "-f", file), `"recalled":"storm"`, `"replicas":0`)
	k.equal("storm", "get", "fleet", "north", "-o", "jsonpath={.metadata.annotations.recalled}")
	k.equal("north: "+`{"apiVersion":"fleets.test/v1","kind":"Recall","reason":"storm"}`, "create", "--raw", path+"echo", "-f", file)
	// A subresource is a resource of its own to RBAC.
	alice := g.kubectlAs(t, cluster.Alice)
	k.run("create", "role", "recall", "--verb=create", "--resource=fleets.fleets.test/recall")
	k.run("create", "rolebinding", "recall", "--role=recall", "--user=alice")
	eventuallyPrints(alice, func(out string) bool { return strings.Contains(out, "recalled") }, "create", "--raw", path+"recall", "-f", file)
	alice.fail("", []string{"create", "--raw", path + "echo", "-f", file}, `cannot create resource "fleets/echo"`)
}
