package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/catena-dev/catena/sdk/apistage"
	"github.com/catena-dev/catena/test/internal/cluster"
)

// envFleetVersion makes the stage fleet serve its kinds in another group and version.
const envFleetVersion = "E2E_FLEET_VERSION"

// fleetOf is the group of the stage fleet, at another version if there is one.
func fleetOf(version string) apistage.Group {
	g := fleetGroup()
	if version != "" {
		g.APIVersion = version
	}
	return g
}

var (
	oldFleets = schema.GroupVersionResource{Group: "fleets.test", Version: "v1", Resource: "fleets"}
	newFleets = schema.GroupVersionResource{Group: "armadas.test", Version: "v2", Resource: "fleets"}
)

// regrouped is a server with the stage fleet, and what a client knows of it.
type regrouped struct {
	*cluster.Catena
	dynamic   *dynamic.DynamicClient
	discovery *discovery.DiscoveryClient
}

func startRegrouped(t *testing.T, dir string) *regrouped {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := copyFile(filepath.Join(dir, "catena-stage-fleet"), self); err != nil {
		t.Fatal(err)
	}
	c, err := cluster.StartCatena(t.Context(), cluster.Options{
		PluginDirs: []string{dir}, Flags: map[string]string{"authorization-mode": "AlwaysAllow"},
		Set: []string{"stages.core.delegate=fleet", `stages.fleet={"lock":"off","isolation":"off","delegate":"extensions","grants":{"store":"own","network":true}}`},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(t.Failed()); err != nil {
			t.Error(err)
		}
	})
	r := &regrouped{Catena: c}
	r.dynamic, err = dynamic.NewForConfig(c.Config(cluster.Admin))
	if err != nil {
		t.Fatal(err)
	}
	if r.discovery, err = discovery.NewDiscoveryClientForConfig(c.Config(cluster.Admin)); err != nil {
		t.Fatal(err)
	}
	return r
}

// A swap to a binary with another group and version changes all that tells of groups, and
// the swap back does again.
func TestSwapChangesGroups(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := startRegrouped(t, dir)
	r.serves(t, oldFleets, newFleets)
	r.stores(t, oldFleets)

	other := filepath.Join(t.TempDir(), "fleet-v2")
	script := fmt.Sprintf("#!/bin/sh\nexport %s=%s\nexec %s\n", envFleetVersion, newFleets.GroupVersion(), filepath.Join(dir, "catena-stage-fleet"))
	if err := cluster.WriteProgram(other, []byte(script)); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		binary  string
		is, not schema.GroupVersionResource
	}{
		{other, newFleets, oldFleets},
		{filepath.Join(dir, "catena-stage-fleet"), oldFleets, newFleets},
	} {
		out, err := r.Command(t.Context(), "swap", "fleet", "--binary", step.binary)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(strings.TrimSpace(out))
		r.serves(t, step.is, step.not)
		r.stores(t, step.is)
	}
}

// serves waits until everything tells of the one group, and nothing of the other.
func (r *regrouped) serves(t *testing.T, is, not schema.GroupVersionResource) {
	t.Helper()
	for what, check := range map[string]func(ctx context.Context, gvr schema.GroupVersionResource) (bool, error){
		"claims": r.claims, "the APIService": r.apiService, "discovery": r.discovers, "aggregated discovery": r.aggregates,
		"OpenAPI v2": r.openAPIv2, "OpenAPI v3": r.openAPIv3, "requests": r.answers,
	} {
		eventually(t, fmt.Sprintf("%s: %s and not %s", what, is.GroupVersion(), not.GroupVersion()), func(ctx context.Context) error {
			has, err := check(ctx, is)
			hasNot, errNot := check(ctx, not)
			if err == nil && errNot == nil && (!has || hasNot) {
				err = fmt.Errorf("has the one: %t, the other: %t", has, hasNot)
			}
			return errors.Join(err, errNot)
		})
	}
}

// stores makes an object of the group.
func (r *regrouped) stores(t *testing.T, gvr schema.GroupVersionResource) {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(1)}}}
	o.SetGroupVersionKind(gvr.GroupVersion().WithKind("Fleet"))
	o.SetGenerateName("made-")
	eventually(t, "an object of "+gvr.String(), func(ctx context.Context) error {
		_, err := r.dynamic.Resource(gvr).Namespace("default").Create(ctx, o, metav1.CreateOptions{})
		return err
	})
}

// claims asks the host which stage it would ask.
func (r *regrouped) claims(ctx context.Context, gvr schema.GroupVersionResource) (bool, error) {
	out, err := r.Command(ctx, "explain", "GET", "/apis/"+gvr.GroupVersion().String()+"/fleets", "-o", "json")
	if err != nil {
		return false, err
	}
	var asked struct {
		Stages []struct {
			Stage string
			Order int
		}
	}
	err = json.Unmarshal([]byte(out), &asked)
	for _, s := range asked.Stages {
		if s.Stage == "fleet" {
			return s.Order > 0, err
		}
	}
	return false, errors.Join(err, fmt.Errorf("the stage fleet is not in %s", out))
}

// apiService is there, served by the chain itself and available.
func (r *regrouped) apiService(ctx context.Context, gvr schema.GroupVersionResource) (bool, error) {
	services := schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	o, err := r.dynamic.Resource(services).Get(ctx, gvr.Version+"."+gvr.Group, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	status, err := json.Marshal(o.Object["status"])
	if err == nil && !strings.Contains(string(status), `"status":"True","type":"Available"`) {
		err = fmt.Errorf("it is %s", status)
	}
	return true, err
}

// discovers asks each document of unaggregated discovery.
func (r *regrouped) discovers(ctx context.Context, gvr schema.GroupVersionResource) (bool, error) {
	var groups metav1.APIGroupList
	body, err := r.raw(ctx, "/apis", "application/json")
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal([]byte(body), &groups); err != nil {
		return false, err
	}
	for _, g := range groups.Groups {
		if g.Name == gvr.Group {
			list, err := r.discovery.ServerResourcesForGroupVersion(gvr.GroupVersion().String())
			if err == nil && len(list.APIResources) == 0 {
				err = fmt.Errorf("%s has no resources", gvr.GroupVersion())
			}
			return true, err
		}
	}
	return false, nil
}

func (r *regrouped) aggregates(ctx context.Context, gvr schema.GroupVersionResource) (bool, error) {
	body, err := r.raw(ctx, "/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	if err == nil && !strings.Contains(body, "APIGroupDiscoveryList") {
		err = fmt.Errorf("discovery is not aggregated: %.200s", body)
	}
	return strings.Contains(body, `"name":"`+gvr.Group+`"`), err
}

func (r *regrouped) openAPIv2(ctx context.Context, gvr schema.GroupVersionResource) (bool, error) {
	body, err := r.raw(ctx, "/openapi/v2", "application/json")
	return strings.Contains(body, `"/apis/`+gvr.GroupVersion().String()+"/namespaces/{namespace}/fleets/{name}"), err
}

func (r *regrouped) openAPIv3(ctx context.Context, gvr schema.GroupVersionResource) (bool, error) {
	index, err := r.raw(ctx, "/openapi/v3", "application/json")
	if err != nil || !strings.Contains(index, `"apis/`+gvr.GroupVersion().String()+`"`) {
		return false, err
	}
	body, err := r.raw(ctx, "/openapi/v3/apis/"+gvr.GroupVersion().String(), "application/json")
	return strings.Contains(body, "/fleets/{name}"), err
}

// answers are the objects themselves, or that there is no such thing.
func (r *regrouped) answers(ctx context.Context, gvr schema.GroupVersionResource) (bool, error) {
	_, err := r.dynamic.Resource(gvr).Namespace("default").List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func (r *regrouped) raw(ctx context.Context, path, accept string) (string, error) {
	body, err := r.discovery.RESTClient().Get().AbsPath(path).SetHeader("Accept", accept).DoRaw(ctx)
	return string(body), err
}
