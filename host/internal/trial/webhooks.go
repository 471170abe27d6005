package trial

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/catena-dev/catena/host/internal/shadow"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// imagePolicy is an admission plugin that calls a webhook which cannot say whether it has side effects.
const imagePolicy = "ImagePolicyWebhook"

// ownGroups returns the groups whose resources both processes keep themselves. Others are kept by servers that are theirs to call, and
// need not know of dry runs.
func ownGroups(old, next *stagev1.DescribeResponse) map[string]bool {
	known := map[string]bool{}
	for _, k := range old.GetKubernetes().GetKinds() {
		known[k.GetGroup()] = true
	}
	groups := map[string]bool{}
	for _, k := range next.GetKubernetes().GetKinds() {
		if known[k.GetGroup()] {
			groups[k.GetGroup()] = true
		}
	}
	return groups
}

// webhooks knows which webhooks have side effects.
type webhooks struct {
	get func(ctx context.Context, path string, header http.Header) ([]byte, error)

	mu   sync.Mutex
	read time.Time
	// effects are the rules of webhooks that do not declare to have none in dry runs.
	effects []effect
	err     error
}

// effect is a webhook with side effects, and what it is called for.
type effect struct {
	webhook string
	rules   []webhookRule
}

type webhookRule struct {
	APIGroups []string `json:"apiGroups"`
	Resources []string `json:"resources"`
}

// webhooksFresh is for how long webhooks that have been read count. Servers refuse dry runs of what has side effects themselves, too.
const webhooksFresh = 2 * time.Second

// mayDryRun returns why a write is not to be a dry run; "" if every webhook that could be called for it declares that it has no side
// effects then.
func (w *webhooks) mayDryRun(ctx context.Context, q shadow.Request) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.read) > webhooksFresh {
		w.effects, w.err = w.load(ctx)
		w.read = time.Now()
	}
	if w.err != nil {
		return "webhooks cannot be read: " + w.err.Error()
	}
	for _, e := range w.effects {
		if slices.ContainsFunc(e.rules, func(r webhookRule) bool { return r.concerns(q.Resource) }) {
			return fmt.Sprintf("webhook %s does not declare that it has no side effects", e.webhook)
		}
	}
	return ""
}

func (w *webhooks) load(ctx context.Context) ([]effect, error) {
	var all []effect
	for _, resource := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
		body, err := w.get(ctx, "/apis/admissionregistration.k8s.io/v1/"+resource, http.Header{"Accept": {"application/json"}})
		if err != nil {
			return nil, err
		}
		var list struct {
			Items []struct {
				Webhooks []struct {
					Name        string        `json:"name"`
					SideEffects string        `json:"sideEffects"`
					Rules       []webhookRule `json:"rules"`
				} `json:"webhooks"`
			} `json:"items"`
		}
		if err := json.Unmarshal(body, &list); err != nil {
			return nil, fmt.Errorf("%s: %w", resource, err)
		}
		for _, item := range list.Items {
			for _, hook := range item.Webhooks {
				if hook.SideEffects != "None" && hook.SideEffects != "NoneOnDryRun" {
					all = append(all, effect{hook.Name, hook.Rules})
				}
			}
		}
	}
	return all, nil
}

// concerns reports whether a rule may match a resource, whatever version, scope, operation and selectors are.
func (r webhookRule) concerns(resource shadow.Resource) bool {
	group := slices.Contains(r.APIGroups, "*") || slices.Contains(r.APIGroups, resource.Group)
	return group && slices.ContainsFunc(r.Resources, func(name string) bool {
		name, _, _ = strings.Cut(name, "/")
		return name == "*" || name == resource.Name
	})
}
