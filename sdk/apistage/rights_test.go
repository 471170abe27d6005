package apistage

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/catena-dev/catena/sdk"
)

func TestSentence(t *testing.T) {
	t.Parallel()
	got := sentence([]right{
		{"get", "", "namespaces"}, {"list", "", "namespaces"}, {"get", "g", "things"}, {"list", "g", "things"}, {"create", "a", "reviews"},
	})
	if want := "get/list namespaces, things.g; create reviews.a"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A write waits for the first response, is refused with the reason while a right is
// missing, and passes once it has been granted.
func TestRights(t *testing.T) {
	t.Parallel()
	var asked, granted atomic.Bool
	client := fake.NewClientset()
	client.PrependReactor("create", "selfsubjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if !asked.Swap(true) {
			return true, nil, errors.New("the server is not there yet")
		}
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview)
		review.Status.Allowed = granted.Load() || review.Spec.ResourceAttributes.Resource != "services"
		return true, review, nil
	})
	r := newRights(&sdk.Env{Name: "s", Log: hclog.NewNullLogger()}, client, []right{{"list", "", "namespaces"}, {"list", "", "services"}})
	done := make(chan bool)
	go func() { done <- r.await(t.Context()) }()

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := r.Admit(ctx, nil, nil)
	if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "may not list services") {
		t.Fatalf("error is %v", err)
	}
	granted.Store(true)
	if !<-done {
		t.Error("it ends without the rights")
	}
	if err := r.Admit(ctx, nil, nil); err != nil {
		t.Errorf("error is %v", err)
	}
}

func TestRightsWithoutAuthorization(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	client.PrependReactor("create", "selfsubjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(authorizationv1.Resource("selfsubjectaccessreviews"), "")
	})
	r := newRights(&sdk.Env{Name: "s", Log: hclog.NewNullLogger()}, client, []right{{"list", "", "namespaces"}})
	if !r.await(t.Context()) {
		t.Error("rights that no stage knows are waited for")
	}
}
