package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/catena-dev/catena/test/benchmark/internal/load"
)

const (
	crdPath   = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	crdDomain = "crds.benchmark.example.com"
	// crdsPerGroup is how many CRDs share an API group.
	crdsPerGroup = 10
	crdPoll      = 250 * time.Millisecond
	crdTimeout   = 10 * time.Minute
)

// createCRDs creates the CRDs from number first up to number end.
func (s *system) createCRDs(ctx context.Context, first, end int) error {
	next := make(chan int, end-first)
	for i := first; i < end; i++ {
		next <- i
	}
	_, err := load.Run(ctx, s.clients, inFlight, end-first, func(ctx context.Context, c *load.Client) error {
		body, err := json.Marshal(crd(<-next))
		if err != nil {
			return err
		}
		return c.JSON.Discovery().RESTClient().Post().AbsPath(crdPath).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
	})
	return err
}

func crdGroup(i int) string { return fmt.Sprintf("g%d.%s", i/crdsPerGroup, crdDomain) }

func crdKind(i int) string { return fmt.Sprintf("Kind%dx", i) } // the x so that Kind1 is not in Kind10

// crd returns a CRD with about 200 fields: eighteen objects of ten strings.
func crd(i int) map[string]any {
	kind := crdKind(i)
	plural := strings.ToLower(kind) + "s"
	sections := map[string]any{}
	for n := range 18 {
		fields := map[string]any{}
		for f := range 10 {
			fields[fmt.Sprintf("field%d", f)] = map[string]any{
				"type": "string", "description": fmt.Sprintf("Field %d of section %d, which says how %s is configured.", f, n, kind),
			}
		}
		sections[fmt.Sprintf("section%d", n)] = map[string]any{"type": "object", "properties": fields}
	}
	return map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + crdGroup(i)},
		"spec": map[string]any{
			"group": crdGroup(i), "scope": "Namespaced",
			"names": map[string]any{"kind": kind, "plural": plural},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type":       "object",
					"properties": map[string]any{"spec": map[string]any{"type": "object", "properties": sections}},
				}},
			}},
		},
	}
}

// awaitCRDs waits until the CRDs up to number end are in discovery, and those from number begin in the
// OpenAPI v3 document of their group.
func (s *system) awaitCRDs(ctx context.Context, begin, end int) error {
	ctx, cancel := context.WithTimeout(ctx, crdTimeout)
	defer cancel()
	if err := s.poll(ctx, "discovery", func() (bool, error) { return s.discovers(ctx, end) }); err != nil {
		return err
	}
	for first := begin / crdsPerGroup * crdsPerGroup; first < end; first += crdsPerGroup {
		var kinds []string
		for i := first; i < min(end, first+crdsPerGroup); i++ {
			kinds = append(kinds, crdKind(i))
		}
		path := "apis/" + crdGroup(first) + "/v1"
		if err := s.poll(ctx, "OpenAPI of "+path, func() (bool, error) { return s.describes(ctx, path, kinds) }); err != nil {
			return err
		}
	}
	return nil
}

// poll waits until a condition holds.
func (s *system) poll(ctx context.Context, what string, holds func() (bool, error)) error {
	for {
		ok, err := holds()
		switch {
		case ok:
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", what, err)
		}
		if err := sleep(ctx, crdPoll); err != nil {
			return fmt.Errorf("%s does not have all CRDs: %w", what, err)
		}
	}
}

// discovers reports whether aggregated discovery has n resources of the CRDs.
func (s *system) discovers(ctx context.Context, n int) (bool, error) {
	body, err := s.get(ctx, "/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	if err != nil {
		return false, err
	}
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Versions []struct{ Resources []struct{ Resource string } }
		}
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return false, err
	}
	found := 0
	for _, group := range list.Items {
		for _, v := range group.Versions {
			if strings.HasSuffix(group.Metadata.Name, crdDomain) {
				found += len(v.Resources)
			}
		}
	}
	return found >= n, nil
}

// get gets a path that is no resource.
func (s *system) get(ctx context.Context, path, accept string) ([]byte, error) {
	return s.clients[0].JSON.Discovery().RESTClient().Get().RequestURI(path).SetHeader("Accept", accept).DoRaw(ctx)
}

// describes reports whether the OpenAPI v3 document at a path of the index has all kinds.
func (s *system) describes(ctx context.Context, path string, kinds []string) (bool, error) {
	body, err := s.get(ctx, "/openapi/v3", "application/json")
	if err != nil {
		return false, err
	}
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal(body, &index); err != nil {
		return false, err
	}
	url := index.Paths[path].ServerRelativeURL
	if url == "" {
		return false, nil
	}
	if body, err = s.get(ctx, url, "application/json"); err != nil {
		return false, err
	}
	for _, kind := range kinds {
		if !bytes.Contains(body, []byte(`"`+kind+`"`)) {
			return false, nil
		}
	}
	return true, nil
}
