package trial

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/catena-dev/catena/host/internal/shadow"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// A write is no dry run if a webhook that may be called for it may have side effects, or if that is not known.
func TestMayDryRun(t *testing.T) {
	t.Parallel()
	const hooks = `{"items": [{"webhooks": [
		{"name": "safe", "sideEffects": "None", "rules": [{"apiGroups": ["*"], "resources": ["*/*"]}]},
		{"name": "dry", "sideEffects": "NoneOnDryRun", "rules": [{"apiGroups": ["*"], "resources": ["*"]}]},
		{"name": "some", "sideEffects": "Some", "rules": [{"apiGroups": [""], "resources": ["pods", "services/status"]}]},
		{"name": "unknown", "sideEffects": "Unknown", "rules": [{"apiGroups": ["apps"], "resources": ["*/scale"]}]},
		{"name": "silent", "rules": [{"apiGroups": ["*"], "resources": ["leases"]}]}]}]}`
	for _, kind := range []string{"mutating", "validating"} {
		w := &webhooks{get: func(_ context.Context, path string, _ http.Header) ([]byte, error) {
			if strings.HasSuffix(path, "/"+kind+"webhookconfigurations") {
				return []byte(hooks), nil
			}
			return []byte(`{"items": []}`), nil
		}}
		for resource, want := range map[shadow.Resource]string{
			{Version: "v1", Name: "configmaps"}:                                 "",
			{Version: "v1", Name: "pods"}:                                       "some",
			{Version: "v1", Name: "pods", Subresource: "status"}:                "some",
			{Version: "v1", Name: "services"}:                                   "some",
			{Group: "batch", Version: "v1", Name: "pods"}:                       "",
			{Group: "apps", Version: "v1", Name: "deployments"}:                 "unknown",
			{Group: "coordination.k8s.io", Version: "v1", Name: "leases"}:       "silent",
			{Group: "networking.k8s.io", Version: "v1", Name: "ingressclasses"}: "",
		} {
			got := w.mayDryRun(t.Context(), shadow.Request{Resource: resource})
			if (got == "") != (want == "") || !strings.Contains(got, want) {
				t.Errorf("%s: %s: %q, want %q", kind, resource, got, want)
			}
		}
	}
	for name, get := range map[string]func(context.Context, string, http.Header) ([]byte, error){
		"error":     func(context.Context, string, http.Header) ([]byte, error) { return nil, errors.New("no luck") },
		"malformed": func(context.Context, string, http.Header) ([]byte, error) { return []byte("{"), nil },
	} {
		if got := (&webhooks{get: get}).mayDryRun(t.Context(), shadow.Request{}); !strings.Contains(got, "cannot be read") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// Writes are compared of groups that both binaries keep themselves: the aggregator's are other servers'.
func TestOwnGroups(t *testing.T) {
	t.Parallel()
	describe := func(groups ...string) *stagev1.DescribeResponse {
		d := &stagev1.DescribeResponse{Kubernetes: &stagev1.Kubernetes{}}
		for _, g := range groups {
			d.Kubernetes.Kinds = append(d.Kubernetes.Kinds, &stagev1.Kubernetes_Kind{Group: g, Kind: "K"})
		}
		return d
	}
	if got := ownGroups(describe("", "apps", "old"), describe("", "apps", "new")); len(got) != 2 || !got[""] || !got["apps"] {
		t.Error(got)
	}
	if got := ownGroups(&stagev1.DescribeResponse{}, describe("")); len(got) != 0 {
		t.Error(got)
	}
}

func TestSecretResources(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/encryption.yaml"
	for config, more := range map[string][]shadow.Resource{
		"": nil,
		"resources: [{resources: [configmaps, widgets.example.com]}]": {{Name: "configmaps"}, {Group: "example.com", Name: "widgets"}},
		"resources: [{resources: ['*.apps']}]":                        {{Group: "apps", Name: "deployments"}},
		"resources: [{resources: ['*.*']}]":                           {{Name: "pods"}},
		"resources: {":                                                {{Name: "pods"}}, // in doubt
	} {
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		secret := secretResources(file)
		for _, r := range append(more, shadow.Resource{Version: "v1", Name: "secrets"}) {
			if !secret(r) {
				t.Errorf("%s: %s is not secret", config, r)
			}
		}
		if more == nil && secret(shadow.Resource{Name: "pods"}) {
			t.Error("pods are secret")
		}
	}
	if !secretResources(file+"-missing")(shadow.Resource{Name: "pods"}) || secretResources("")(shadow.Resource{Name: "pods"}) {
		t.Error("which resources are secret is not known from files")
	}
}
