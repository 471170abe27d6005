package upgrade

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// resource is one that is served, or a subresource such as deployments/scale.
type resource struct{ group, version, name string }

func (r resource) String() string {
	return r.name + "." + schema.GroupVersion{Group: r.group, Version: r.version}.String()
}

// list is the path of the list of all objects.
func (r resource) list() string {
	if r.group == "" {
		return "/api/" + r.version + "/" + r.name
	}
	return "/apis/" + r.group + "/" + r.version + "/" + r.name
}

// firstKind is in the first API group, that of core.
var firstKind = schema.GroupKind{Kind: "Namespace"}

// aggregatedDiscovery is the media type of the document with all groups.
const aggregatedDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// served is how a resource is served.
type served struct {
	verbs []string
	kind  schema.GroupKind
}

func (s served) allows(verb string) bool { return slices.Contains(s.verbs, verb) }

// discover returns the resources that a process serves, if they are of its own kinds: the documents of the aggregator have those of
// other stages too.
func discover(ctx context.Context, s Side, own func(schema.GroupKind) bool) (map[resource]served, error) {
	all := map[resource]served{}
	paths := []string{"/api", "/apis"}
	if !own(firstKind) {
		paths = paths[1:] // extensions does not know that there is no /api until its post-start hooks have run
	}
	for _, path := range paths {
		body, err := s.Get(ctx, path, http.Header{"Accept": {aggregatedDiscovery}})
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("discovery: %w", err)
		}
		var list apidiscoveryv2.APIGroupDiscoveryList
		if err := json.Unmarshal(body, &list); err != nil {
			return nil, fmt.Errorf("discovery: GET %s: %w", path, err)
		}
		for _, group := range list.Items {
			for _, v := range group.Versions {
				for _, r := range v.Resources {
					s := served{verbs: r.Verbs, kind: schema.GroupKind{Group: group.Name}}
					if r.ResponseKind != nil {
						s.kind = schema.GroupKind{Group: cmp.Or(r.ResponseKind.Group, group.Name), Kind: r.ResponseKind.Kind}
					}
					if !own(s.kind) {
						continue
					}
					all[resource{group.Name, v.Version, r.Resource}] = s
					for _, sub := range r.Subresources {
						all[resource{group.Name, v.Version, r.Resource + "/" + sub.Subresource}] = served{verbs: sub.Verbs, kind: s.kind}
					}
				}
			}
		}
	}
	return all, nil
}

// compareServed finds resources that come and go, and objects that the two processes read differently.
// Custom resources are not served before the post-start hooks have run: addCustom compares their definitions.
func (p *Plan) compareServed(ctx context.Context, in Input) error {
	oldKinds, nextKinds := kinds(in.Old.Release), kinds(in.New.Release)
	own := func(gk schema.GroupKind) bool { return oldKinds[gk] != nil || nextKinds[gk] != nil }
	old, err := discover(ctx, in.Old, own)
	if err != nil {
		return fmt.Errorf("%s: %w", p.From, err)
	}
	next, err := discover(ctx, in.New, own)
	if err != nil {
		return fmt.Errorf("%s: %w", p.To, err)
	}
	for r := range old {
		if _, stays := next[r]; stays {
			continue
		}
		clients := in.Clients(r.group, r.version, r.name)
		f := Finding{Topic: Removed, Name: r.String(), Clients: clients, Blocks: len(clients) > 0,
			Detail: "is not served by " + p.To + "; no client has used it since the host started"}
		if len(clients) > 0 {
			f.Detail = "is not served by " + p.To + ", and in use"
		}
		p.add(f)
	}
	was := map[schema.GroupKind]bool{}
	for _, s := range old {
		was[s.kind] = true
	}
	for r, now := range next {
		if _, stays := old[r]; stays {
			continue
		}
		p.add(Finding{Topic: Added, Name: r.String(), Detail: strings.Join(now.verbs, ",")})
		if !was[now.kind] && now.allows("create") && now.allows("list") {
			p.add(Finding{Topic: Back, Name: r.String(), Detail: fmt.Sprintf("%s does not serve the kind: objects that are made with %s stay in the store, and are not served after the way back", p.From, p.To)})
		}
	}
	for _, r := range slices.SortedFunc(maps.Keys(old), func(a, b resource) int { return strings.Compare(a.String(), b.String()) }) {
		if in.Sample > 0 && old[r].allows("list") && next[r].allows("list") {
			if err := p.compareObjects(ctx, in, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// compareObjects compares the objects of a resource that have not changed in between. Each field that differs is told
// once, without its value, which may be secret.
func (p *Plan) compareObjects(ctx context.Context, in Input, r resource) error {
	path := r.list() + "?" + url.Values{"limit": {strconv.Itoa(in.Sample)}}.Encode()
	lists := [2]map[string]unstructured.Unstructured{}
	for i, side := range []Side{in.Old, in.New} {
		body, err := side.Get(ctx, path, http.Header{"Accept": {"application/json"}})
		if err != nil {
			return fmt.Errorf("list of %s: %w", r, err)
		}
		var list struct {
			Items []map[string]any `json:"items"`
		}
		if err := json.Unmarshal(body, &list); err != nil {
			return fmt.Errorf("list of %s: %w", r, err)
		}
		lists[i] = map[string]unstructured.Unstructured{}
		for _, object := range list.Items {
			item := unstructured.Unstructured{Object: object}
			lists[i][item.GetNamespace()+"/"+item.GetName()+" "+item.GetResourceVersion()] = item
		}
	}
	told := map[string]bool{}
	for key, before := range lists[0] {
		after, ok := lists[1][key]
		if !ok {
			continue
		}
		p.Compared++
		differences(before.Object, after.Object, "", func(field, how string) {
			if told[field+how] {
				return
			}
			told[field+how] = true
			name, _, _ := strings.Cut(strings.TrimPrefix(key, "/"), " ")
			p.add(Finding{Topic: Differs, Name: r.String(), Detail: fmt.Sprintf("%s %s, as in %s",
				strings.TrimPrefix(field, "."), how, name)})
		})
	}
	return nil
}

// differences reports the fields in which two values differ.
func differences(old, next any, field string, report func(field, how string)) {
	switch a := old.(type) {
	case map[string]any:
		b, ok := next.(map[string]any)
		if !ok {
			report(field, "is of another type")
			return
		}
		for key, value := range a {
			if after, ok := b[key]; ok {
				differences(value, after, field+"."+key, report)
			} else {
				report(field+"."+key, "is not there any more")
			}
		}
		for key := range b {
			if _, ok := a[key]; !ok {
				report(field+"."+key, "is new")
			}
		}
	case []any:
		b, ok := next.([]any)
		if !ok || len(a) != len(b) {
			report(field, "has other elements")
			return
		}
		for i := range a {
			differences(a[i], b[i], field+"[]", report)
		}
	default:
		if old != next {
			report(field, "differs")
		}
	}
}
