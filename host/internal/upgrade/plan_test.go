package upgrade

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// server has responses by path.
type server map[string]string

func (s server) get(_ context.Context, path string, _ http.Header) ([]byte, error) {
	path, _, _ = strings.Cut(path, "?")
	if body, ok := s[path]; ok {
		return []byte(body), nil
	}
	return nil, fmt.Errorf("GET %s: %w", path, ErrNotFound)
}

// discovery is a document with resources, each as "GROUP/VERSION/RESOURCE Kind" and all with the verbs list and create.
func discovery(t *testing.T, resources ...string) string {
	t.Helper()
	var list apidiscoveryv2.APIGroupDiscoveryList
	for _, text := range resources {
		path, kind, _ := strings.Cut(text, " ")
		parts := strings.Split(path, "/")
		list.Items = append(list.Items, apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: parts[0]}, Versions: []apidiscoveryv2.APIVersionDiscovery{{
			Version: parts[1], Resources: []apidiscoveryv2.APIResourceDiscovery{{
				Resource: parts[2], Verbs: []string{"create", "list"}, ResponseKind: &metav1.GroupVersionKind{Group: parts[0], Version: parts[1], Kind: kind},
			}},
		}}})
	}
	b, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func kind(group, name, storage string, versions ...string) *stagev1.Kubernetes_Kind {
	return &stagev1.Kubernetes_Kind{Group: group, Kind: name, Versions: versions, Served: versions, StorageVersion: storage}
}

// Each difference between two releases is found, and only what loses data, breaks a client or does not start blocks.
func TestPlan(t *testing.T) {
	t.Parallel()
	protobuf := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}}
	encoded, err := protobuf.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	stored := map[string]string{
		"/registry/jobs/a/b":   "k8s\x00" + string(encoded),
		"/registry/old/x":      `{"apiVersion":"old.k8s.io/v1beta1","kind":"Old"}`,
		"/registry/old/y":      `{"apiVersion":"old.k8s.io/v1","kind":"Old"}`,
		"/registry/moved/z":    `{"apiVersion":"moved.k8s.io/v1","kind":"Moved"}`,
		"/registry/others/o":   `{"apiVersion":"example.com/v1","kind":"Other"}`,
		"/registry/secrets/s":  "k8s:enc:aesgcm:v1:key:\x01\x02",
		"/registry/ranges/all": "neither",
	}
	in := Input{
		Stage: "core", Sample: 10,
		Flags: []string{"v=2", "gone=1", "feature-gates=Kept=true,kube:Lost=true,AllBeta=true", "enable-admission-plugins=Stays,Leaves"},
		Clients: func(group, _, resource string) []Client {
			if group == "used.k8s.io" && resource == "things" {
				return []Client{{"manager/v1", 7}}
			}
			return nil
		},
		Stored: func(_ context.Context, found func(string, []byte)) error {
			for key, value := range stored {
				found(key, []byte(value))
			}
			return nil
		},
	}
	in.Old = Side{
		Release: &stagev1.Kubernetes{
			Release: "v1.36.3", FeatureGates: []string{"Kept=false", "Lost=false"},
			Kinds: []*stagev1.Kubernetes_Kind{kind("batch", "Job", "v1", "v1"), kind("old.k8s.io", "Old", "v1", "v1", "v1beta1"), kind("moved.k8s.io", "Moved", "v1", "v1"), kind("used.k8s.io", "Thing", "v1", "v1"), kind("idle.k8s.io", "Rest", "v1", "v1")},
		},
		Get: server{
			"/api":                  discovery(t),
			"/apis":                 discovery(t, "batch/v1/jobs Job", "used.k8s.io/v1/things Thing", "idle.k8s.io/v1/rests Rest", "other.k8s.io/v1/theirs Theirs"), // which another stage has
			"/apis/batch/v1/jobs":   `{"items":[{"metadata":{"namespace":"a","name":"b","resourceVersion":"5"},"spec":{"same":1,"gone":2,"list":[{"a":1}],"other":true}},{"metadata":{"name":"c","resourceVersion":"6"},"spec":1}]}`,
			"/apis/idle.k8s.io/v1/": "",
		}.get,
	}
	in.New = Side{
		Release: &stagev1.Kubernetes{
			Release: "v1.37.0", Flags: []string{"v", "feature-gates", "enable-admission-plugins"}, FeatureGates: []string{"Kept=true"}, AdmissionPlugins: []string{"Stays"},
			Kinds: []*stagev1.Kubernetes_Kind{kind("batch", "Job", "v1", "v1"), kind("old.k8s.io", "Old", "v1", "v1"), kind("moved.k8s.io", "Moved", "v2", "v2", "v1"), kind("new.k8s.io", "New", "v1", "v1")},
		},
		Get: server{
			"/apis":               discovery(t, "batch/v1/jobs Job", "new.k8s.io/v1/news New"), // and no /api, as extensions
			"/apis/batch/v1/jobs": `{"items":[{"metadata":{"namespace":"a","name":"b","resourceVersion":"5"},"spec":{"same":1,"list":[{"a":2}],"other":"yes","fresh":1}},{"metadata":{"name":"c","resourceVersion":"7"},"spec":2}]}`,
		}.get,
	}
	p, err := Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range p.Findings {
		mark := " "
		if f.Blocks {
			mark = "!"
		}
		got = append(got, mark+string(f.Topic)+" "+f.Name+": "+f.Detail)
	}
	want := []string{
		"!setting Leaves: the new release does not know the admission plugin of apiserver.enable-admission-plugins",
		"!setting Lost: the new release does not know the feature gate of apiserver.feature-gates",
		"!setting apiserver.gone: the new release does not know the flag",
		"!unreadable Old.old.k8s.io: 1 objects are stored as old.k8s.io/v1beta1, which v1.37.0 cannot read, such as /registry/old/x",
		"!removed things.used.k8s.io/v1: is not served by v1.37.0, and in use",
		" removed rests.idle.k8s.io/v1: is not served by v1.37.0; no client has used it since the host started",
		"!way back Moved.moved.k8s.io: is written as v2, which v1.36.3 cannot read: the way back loses each object that has been written by then",
		" way back news.new.k8s.io/v1: v1.36.3 does not serve the kind: objects that are made with v1.37.0 stay in the store, and are not served after the way back",
		" way back safe: until an object is written of Moved.moved.k8s.io, news.new.k8s.io/v1",
		" object jobs.batch/v1: spec.fresh is new, as in a/b",
		" object jobs.batch/v1: spec.gone is not there any more, as in a/b",
		" object jobs.batch/v1: spec.list[].a differs, as in a/b",
		" object jobs.batch/v1: spec.other differs, as in a/b",
		" default Kept: feature gate: the default is true, and was false",
		" added news.new.k8s.io/v1: create,list",
		" not looked at encrypted objects: 1 objects are encrypted in the store: which versions they are stored in is not looked at",
	}
	slices.Sort(got)
	slices.Sort(want)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("findings\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if p.Objects != len(stored) || p.Compared != 1 || len(p.Blocked()) != 6 {
		t.Errorf("%d objects, %d compared, %d in the way", p.Objects, p.Compared, len(p.Blocked()))
	}
	if err := p.Check([]string{"Leaves", "Lost", "apiserver.gone", "Old.old.k8s.io", "things.used.k8s.io/v1"}); err == nil || !strings.Contains(err.Error(), "Moved.moved.k8s.io") || strings.Contains(err.Error(), "Leaves") {
		t.Error(err)
	}
	if err := p.Check([]string{"Leaves", "Lost", "apiserver.gone", "Old.old.k8s.io", "things.used.k8s.io/v1", "Moved.moved.k8s.io"}); err != nil {
		t.Error(err)
	}
	if !slices.IsSortedFunc(p.Findings, func(a, b Finding) int { return slices.Index(topics, a.Topic) - slices.Index(topics, b.Topic) }) {
		t.Error("topics are not in their order")
	}
}

// Servers of one cluster are neighbours; a process that does not come up, and binaries that say nothing, are told.
func TestPlanOfOtherReleases(t *testing.T) {
	t.Parallel()
	none := func(context.Context, func(string, []byte)) error { return nil }
	for _, c := range []struct {
		from, to string
		blocked  int
	}{{"v1.37.0", "v1.37.2", 0}, {"v1.37.0", "v1.36.3", 0}, {"v1.36.3", "v1.37.0", 0}, {"v1.35.4", "v1.37.0", 1}, {"v1.37.0", "v2.37.0", 1}} {
		p, err := Make(t.Context(), Input{Stored: none, Old: Side{Release: &stagev1.Kubernetes{Release: c.from}}, New: Side{Release: &stagev1.Kubernetes{Release: c.to}}})
		if in := (Input{Old: Side{Release: &stagev1.Kubernetes{Release: c.from}}, New: Side{Release: &stagev1.Kubernetes{Release: c.to}}}); in.Crosses() != (c.to != "v1.37.2") {
			t.Errorf("%s to %s: to another minor release: %t", c.from, c.to, in.Crosses())
		}
		if err != nil || len(p.Blocked()) != c.blocked {
			t.Errorf("%s to %s: %v, %v", c.from, c.to, p, err)
		}
	}
	one := Side{Release: &stagev1.Kubernetes{Release: "v1.37.0"}}
	if p, err := Make(t.Context(), Input{Stored: none, Old: one, New: one, Failure: fmt.Errorf("no luck")}); err != nil || len(p.Blocked()) != 1 || p.Findings[0].Topic != Start {
		t.Errorf("%v, %v", p, err)
	}
	if _, err := Make(t.Context(), Input{Stage: "x", Stored: none, Old: one}); err == nil || !strings.Contains(err.Error(), "do not both say") {
		t.Error(err)
	}
}

// A process that serves as the old release writes nothing that the old one could not read.
func TestPlanWithEmulation(t *testing.T) {
	t.Parallel()
	p, err := Make(t.Context(), Input{
		Emulated: "1.36", Stored: func(context.Context, func(string, []byte)) error { return nil },
		Old: Side{Release: &stagev1.Kubernetes{Release: "v1.36.3", FeatureGates: []string{"A=false"}, Kinds: []*stagev1.Kubernetes_Kind{kind("x", "X", "v1", "v1")}}},
		New: Side{Release: &stagev1.Kubernetes{Release: "v1.37.0", FeatureGates: []string{"A=true"}, Kinds: []*stagev1.Kubernetes_Kind{kind("x", "X", "v2", "v2", "v1")}}},
	})
	if err != nil || len(p.Findings) != 1 || p.Findings[0].Topic != Back || p.Findings[0].Blocks {
		t.Errorf("%+v, %v", p, err)
	}
}
