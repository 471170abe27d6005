package upgrade

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// found returns the findings of some topics, each as "topic name: detail", with ! before those that block.
func found(p *Plan, topics ...Topic) string {
	var all []string
	for _, f := range p.Findings {
		for _, topic := range topics {
			if f.Topic == topic {
				mark := ""
				if f.Blocks {
					mark = "!"
				}
				all = append(all, mark+string(f.Topic)+" "+f.Name+": "+f.Detail)
			}
		}
	}
	return strings.Join(all, "\n")
}

func stored(objects map[string]string) func(context.Context, func(string, []byte)) error {
	return func(_ context.Context, found func(string, []byte)) error {
		for key, value := range objects {
			found(key, []byte(value))
		}
		return nil
	}
}

// The host and the other stages, too, are servers of the cluster: each has to be a neighbour of the new release.
func TestPlanBeside(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		to     string
		beside []Component
		want   string // the name of what is in the way
	}{
		{"v1.36.3", []Component{{"host", "v1.37.0"}, {"stage extensions", "v1.36.3"}, {"stage aggregator", "v1.35.1"}, {"stage hello", ""}}, ""},
		{"v1.36.3", []Component{{"host", "v1.37.0"}, {"stage extensions", "v1.38.0"}}, "stage extensions"},
		{"v1.36.3", []Component{{"host", "v1.38.1"}, {"stage extensions", "v1.36.0"}}, "host"},
		{"v1.36.3", []Component{{"host", "v2.36.0"}}, "host"},
	} {
		p, err := Make(t.Context(), Input{
			Beside: c.beside, Stored: stored(nil), Old: Side{Release: &stagev1.Kubernetes{Release: "v1.37.0"}}, New: Side{Release: &stagev1.Kubernetes{Release: c.to}},
		})
		if err != nil {
			t.Fatal(err)
		}
		switch got := found(p, Skew); {
		case c.want == "" && got != "":
			t.Errorf("beside %v: %s", c.beside, got)
		case c.want != "" && (!strings.HasPrefix(got, "!release "+c.want+": is of v") || strings.Contains(got, "\n") || !strings.Contains(got, "at most one minor release apart")):
			t.Errorf("beside %v: %q, want %s", c.beside, got, c.want)
		}
	}
}

// Controllers are not newer than what the new process serves, and at most one minor release older, unless they go
// along.
func TestPlanOfControllers(t *testing.T) {
	t.Parallel()
	of := func(release string) Controllers {
		return Controllers{Component: Component{"stage controllers", release}}
	}
	along := of("v1.37.0")
	along.Along = "/x"
	for _, c := range []struct {
		from, to, emulated string
		controllers        Controllers
		want               string
	}{
		{"v1.37.0", "v1.36.3", "", Controllers{}, ""},
		{"v1.37.0", "v1.36.3", "", of("v1.36.9"), ""},
		{"v1.37.0", "v1.37.0", "", of("v1.36.3"), ""},
		{"v1.37.0", "v1.36.3", "", of("v1.37.0"), "!is of v1.37.0: controllers must not be newer"},
		{"v1.37.0", "v1.37.0", "1.36", of("v1.37.0"), "!is of v1.37.0: controllers must not be newer"},
		{"v1.37.0", "v1.37.0", "1.36", of("v1.36.3"), ""},
		{"v1.36.3", "v1.37.0", "1.36", of("v1.37.0"), "is of v1.37.0: controllers must not be newer"}, // and are before
		{"v1.36.3", "v1.37.0", "", of("v1.34.0"), "is of v1.34.0: controllers are at most"},
		{"v1.36.3", "v1.37.0", "", of("v1.35.0"), "!is of v1.35.0: controllers are at most"},
		{"v1.37.0", "v1.36.3", "", along, "goes along, to /x"},
	} {
		p, err := Make(t.Context(), Input{
			Controllers: c.controllers, Emulated: c.emulated, Stored: stored(nil),
			Old: Side{Release: &stagev1.Kubernetes{Release: c.from}},
			New: Side{Release: &stagev1.Kubernetes{Release: c.to}},
		})
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Replace(found(p, Skew), "release stage controllers: ", "", 1)
		if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// crd is the definition of gadgets in a group, each with its versions, the last of which is that of the store.
func crd(group string, storedVersions string, versions ...string) string {
	var all []string
	for i, v := range versions {
		all = append(all, fmt.Sprintf(`{"name":%q,"served":true,"storage":%t}`, v, i == len(versions)-1))
	}
	return fmt.Sprintf(`{"metadata":{"name":"gadgets.%s"},"spec":{"group":%q,"names":{"plural":"gadgets","kind":"Gadget"},"versions":[%s]},"status":{"storedVersions":[%s]}}`,
		group, group, strings.Join(all, ","), storedVersions)
}

// Custom resources are read by the definitions that each side has, and may be in the store in each of their stored versions.
func TestPlanOfExtensions(t *testing.T) {
	t.Parallel()
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	side := func(release string, served []string, crds ...string) Side {
		return Side{
			Release: &stagev1.Kubernetes{Release: release, Kinds: []*stagev1.Kubernetes_Kind{kind("apiextensions.k8s.io", "CustomResourceDefinition", "v1", "v1")}},
			Get: server{
				path:    `{"items":[` + strings.Join(crds, ",") + `]}`,
				"/apis": discovery(t, append([]string{"apiextensions.k8s.io/v1/customresourcedefinitions CustomResourceDefinition"}, served...)...),
			}.get,
		}
	}
	p, err := Make(t.Context(), Input{
		Stored: stored(map[string]string{"/registry/lost.io/gadgets/a": `{"apiVersion":"lost.io/v1","kind":"Gadget"}`, "/registry/same.io/gadgets/a": `{"apiVersion":"same.io/v1","kind":"Gadget"}`}),
		Old:    side("v1.36.3", []string{"same.io/v1/gadgets Gadget"}, crd("lost.io", `"v1","v2"`, "v1", "v2"), crd("same.io", `"v1"`, "v1"), crd("gone.io", `"v0","v1"`, "v1"), crd("moved.io", `"v1"`, "v1")),
		New:    side("v1.37.0", nil, crd("lost.io", `"v1","v2"`, "v2"), crd("same.io", `"v1"`, "v1"), crd("gone.io", `"v0","v1"`, "v1"), crd("moved.io", `"v1"`, "v1", "v2")),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `!unreadable Gadget.lost.io: status.storedVersions of gadgets.lost.io has v1, which v1.37.0 cannot read
!unreadable Gadget.lost.io: 1 objects are stored as lost.io/v1, which v1.37.0 cannot read, such as /registry/lost.io/gadgets/a
unreadable Gadget.gone.io: status.storedVersions of gadgets.gone.io has v0, which neither release reads
way back Gadget.moved.io: is written as v2, which v1.36.3 cannot read: the way back loses each object that has been written by then
way back safe: until an object is written of Gadget.moved.io
not looked at custom resources: objects of 4 definitions are not compared: the new process serves them later`
	if got := found(p, Unreadable, Back, Removed, Unknown); got != want {
		t.Errorf("findings\n%s\nwant\n%s", got, want)
	}

	broken := side("v1.37.0", nil)
	broken.Get = server{path: "[", "/apis": discovery(t)}.get
	if _, err := Make(t.Context(), Input{Stored: stored(nil), Old: side("v1.36.3", nil), New: broken}); err == nil || !strings.Contains(err.Error(), "v1.37.0: custom resource definitions: ") {
		t.Error(err)
	}
}

// Other servers of the cluster have told what they write and read, if StorageVersions are switched on.
func TestPlanBesideOtherServers(t *testing.T) {
	t.Parallel()
	kinds := func(storage string) []*stagev1.Kubernetes_Kind {
		return []*stagev1.Kubernetes_Kind{kind("apps", "Deployment", "v1", "v1"), kind("x.k8s.io", "X", storage, "v2", "v1"), kind("", "Pod", "v1", "v1")}
	}
	const path = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"
	reported := func(name, servers string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},"status":{"storageVersions":[%s]}}`, name, servers)
	}
	list := `{"items":[` + strings.Join([]string{
		reported("apps.deployments", `{"apiServerID":"one","encodingVersion":"apps/v1","decodableVersions":["apps/v1"]},{"apiServerID":"two","encodingVersion":"apps/v3","decodableVersions":["apps/v1","apps/v3"]}`),
		reported("x.k8s.io.xs", `{"apiServerID":"one","encodingVersion":"x.k8s.io/v1","decodableVersions":["x.k8s.io/v1","x.k8s.io/v2"]},{"apiServerID":"two","encodingVersion":"x.k8s.io/v1","decodableVersions":["x.k8s.io/v1"]}`),
		reported("core.pods", `{"apiServerID":"one","encodingVersion":"v1","decodableVersions":["v1"]}`),
		reported("gone.io.things", `{"apiServerID":"one","encodingVersion":"gone.io/v1","decodableVersions":["gone.io/v1"]}`),
		reported("nonsense", ``),
	}, ",") + `]}`
	resources := []string{"apps/v1/deployments Deployment", "x.k8s.io/v1/xs X", "internal.apiserver.k8s.io/v1alpha1/storageversions StorageVersion"}
	for name, c := range map[string]struct {
		emulated string
		chain    func(context.Context, string, http.Header) ([]byte, error)
		want     string
	}{
		"reported": {"", server{"/api": discovery(t, "/v1/pods Pod"), "/apis": discovery(t, resources...), path: list}.get,
			"!unreadable Deployment.apps: the server two writes it as v3, which v1.37.0 cannot read\n" +
				"!way back X.x.k8s.io: is written as v2, which the server two of the same cluster cannot read"},
		"emulated": {"1.36", server{"/api": discovery(t), "/apis": discovery(t, resources...), path: list}.get,
			"!unreadable Deployment.apps: the server two writes it as v3, which v1.37.0 cannot read\n" +
				"way back emulation: v1.37.0 serves, and writes, as 1.36 until catena upgrade finalize: the way back is safe until then"},
		"not switched on": {"", server{"/api": discovery(t), "/apis": discovery(t, resources[:2]...)}.get, ""},
	} {
		p, err := Make(t.Context(), Input{
			Stored: stored(nil), Chain: c.chain, Emulated: c.emulated,
			Old: Side{Release: &stagev1.Kubernetes{Release: "v1.36.3", Kinds: kinds("v1")}}, New: Side{Release: &stagev1.Kubernetes{Release: "v1.37.0", Kinds: kinds("v2")}},
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := found(p, Unreadable, Back); got != c.want {
			t.Errorf("%s: findings\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

// What reads all that the other writes can come back at any time.
func TestPlanWayBackIsSafe(t *testing.T) {
	t.Parallel()
	side := func(release string) Side {
		return Side{Release: &stagev1.Kubernetes{Release: release}, Get: server{"/apis": discovery(t)}.get}
	}
	p, err := Make(t.Context(), Input{Stored: stored(nil), Old: side("v1.36.3"), New: side("v1.37.0")})
	if want := "way back safe: v1.36.3 reads all that v1.37.0 writes"; err != nil || found(p, Back) != want {
		t.Errorf("%q, %v; want %q", found(p, Back), err, want)
	}
}
