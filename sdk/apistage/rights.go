package apistage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes"

	"github.com/catena-dev/catena/sdk"
)

// right is something that the stage has to be allowed to do.
type right struct{ verb, group, resource string }

// sentence lists rights: "get namespaces, services; create subjectaccessreviews".
func sentence(rights []right) string {
	var verbs []string
	resources := map[string][]string{}
	for _, r := range rights {
		if !slices.Contains(verbs, r.verb) {
			verbs = append(verbs, r.verb)
		}
		resources[r.verb] = append(resources[r.verb], schema.GroupResource{Group: r.group, Resource: r.resource}.String())
	}
	var parts, together []string
	for i, verb := range verbs {
		together = append(together, verb)
		if i+1 < len(verbs) && slices.Equal(resources[verb], resources[verbs[i+1]]) {
			continue
		}
		parts = append(parts, strings.Join(together, "/")+" "+strings.Join(resources[verb], ", "))
		together = nil
	}
	return strings.Join(parts, "; ")
}

// requiredRights are those that admission and authorization need.
func requiredRights(plugins []string, reviews bool) []right {
	var rights []right
	add := func(r right) {
		if !slices.Contains(rights, r) {
			rights = append(rights, r)
		}
	}
	for _, plugin := range plugins {
		for _, read := range readsOf[plugin] {
			for _, verb := range []string{"get", "list", "watch"} {
				add(right{verb, read.group, read.resource})
			}
		}
	}
	if reviews {
		add(right{"create", "authorization.k8s.io", "subjectaccessreviews"})
	}
	return rights
}

// rights finds out whether the stage may do what it needs to. As long as it may not,
// writes are refused with the reason, where they would else wait for informers that
// never come up.
type rights struct {
	env     *sdk.Env
	client  kubernetes.Interface
	needed  []right
	missing atomic.Pointer[string]
	// known is closed by the first response.
	known chan struct{}
	once  sync.Once
}

func newRights(env *sdk.Env, client kubernetes.Interface, needed []right) *rights {
	return &rights{env: env, client: client, needed: needed, known: make(chan struct{})}
}

// rightsPoll is how often missing rights are asked for.
const rightsPoll = time.Second

// await returns true once the stage has all rights, false if ctx ends before.
func (r *rights) await(ctx context.Context) bool {
	tick := time.NewTicker(rightsPoll)
	defer tick.Stop()
	for {
		missing, err := r.check(ctx)
		if err == nil {
			r.report(missing)
			if len(missing) == 0 {
				return true
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

// check asks the server about the stage's own rights.
func (r *rights) check(ctx context.Context) ([]right, error) {
	var missing []right
	for _, needed := range r.needed {
		review, err := r.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: needed.verb, Group: needed.group, Resource: needed.resource,
			}},
		}, metav1.CreateOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil, nil // no stage in the chain knows rights
		case err != nil:
			return nil, err
		case !review.Status.Allowed:
			missing = append(missing, needed)
		}
	}
	return missing, nil
}

func (r *rights) report(missing []right) {
	defer r.once.Do(func() { close(r.known) })
	if len(missing) == 0 {
		if r.missing.Swap(nil) != nil {
			r.env.Log.Info("the stage has been granted its rights")
		}
		return
	}
	host, list := r.env.Host(), sentence(missing)
	message := fmt.Sprintf("stage %q cannot run admission: its user %q may not %s", r.env.Name, host.User, list)
	if before := r.missing.Swap(&message); before == nil || *before != message {
		r.env.Log.Warn("the stage lacks rights: its resources cannot be written", "user", host.User, "missing", list)
	}
}

// Handles makes rights the first admission plugin.
func (r *rights) Handles(admission.Operation) bool { return true }

// Admit refuses writes while rights are missing.
func (r *rights) Admit(ctx context.Context, _ admission.Attributes, _ admission.ObjectInterfaces) error {
	select {
	case <-r.known:
	case <-ctx.Done():
		return apierrors.NewServiceUnavailable(fmt.Sprintf("stage %q does not know its rights yet", r.env.Name))
	}
	if missing := r.missing.Load(); missing != nil {
		return apierrors.NewServiceUnavailable(*missing)
	}
	return nil
}
