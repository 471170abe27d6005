package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/apis/rbac"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
	schedulingrest "k8s.io/kubernetes/pkg/registry/scheduling/rest"

	"github.com/catena-dev/catena/sdk"
)

// earlyHook is a post-start hook that pauses before its first request, as Kubernetes' rbac/bootstrap-roles and
// scheduling/bootstrap-system-priority-classes do for a second. It is begun before the server is built, so that the
// pause passes meanwhile. Its requests wait until it is due, so that it does nothing earlier than it would.
type earlyHook struct {
	// group is the API group with which a server has the hook.
	group, name string
	hook        genericapiserver.PostStartHookFunc
	server      dueTransport
	done        chan error
}

// beginHook begins the hook. One that is never due waits until its process ends.
func beginHook(group, name string, hook genericapiserver.PostStartHookFunc) *earlyHook {
	h := &earlyHook{group: group, name: name, hook: hook, server: dueTransport{due: make(chan struct{})}, done: make(chan error, 1)}
	// The server's own client is made when the hook is due. This is what is not up to its transport.
	config := &rest.Config{Host: "http://server", UserAgent: userAgent(), QPS: -1, Transport: &h.server,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf}}
	go func() {
		defer func() {
			if p := recover(); p != nil {
				h.done <- fmt.Errorf("panic: %v", p)
			}
		}()
		h.done <- hook(genericapiserver.PostStartHookContext{Context: context.Background(), LoopbackClientConfig: config})
	}()
	return h
}

// run is the hook as the server runs it. Should what has begun early fail, since its time was almost over when it was
// due, the hook is run once more, with all of its time.
func (h *earlyHook) run(due genericapiserver.PostStartHookContext) error {
	if err := h.server.begin(due.LoopbackClientConfig); err != nil {
		return err
	}
	if err := <-h.done; err == nil {
		return nil
	}
	return h.hook(due)
}

// dueTransport keeps requests until a hook is due.
type dueTransport struct {
	due    chan struct{} // closed when the others are set
	server *url.URL
	next   http.RoundTripper
}

// begin lets the requests go, to the server of the configuration.
func (t *dueTransport) begin(config *rest.Config) error {
	var err error
	if t.server, _, err = rest.DefaultServerUrlFor(config); err != nil {
		return err
	}
	if t.next, err = rest.TransportFor(config); err != nil {
		return err
	}
	close(t.due)
	return nil
}

// RoundTrip implements http.RoundTripper.
func (t *dueTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-t.due:
		r = r.Clone(r.Context())
		r.URL.Scheme, r.URL.Host = t.server.Scheme, t.server.Host
		return t.next.RoundTrip(r)
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
}

// earlyHooks are the hooks that are begun early.
type earlyHooks struct {
	// begin begins them, when it is called first.
	begin func() ([]*earlyHook, error)
}

// newEarlyHooks returns those of Kubernetes' hooks that pause.
func newEarlyHooks() *earlyHooks {
	return &earlyHooks{begin: sync.OnceValues(func() ([]*earlyHook, error) {
		var hooks []*earlyHook
		for group, provider := range map[string]genericapiserver.PostStartHookProvider{
			rbac.GroupName:       rbacrest.RESTStorageProvider{},
			scheduling.GroupName: schedulingrest.RESTStorageProvider{},
		} {
			name, hook, err := provider.PostStartHook()
			if err != nil {
				return nil, err
			}
			hooks = append(hooks, beginHook(group, name, hook))
		}
		return hooks, nil
	})}
}

// validate is that of the stage. It begins the hooks unless there are flags that set features, on which depends what
// roles there are: these are in effect when the stage is configured.
func (e *earlyHooks) validate(config []byte, flags []string) []sdk.ConfigProblem {
	problems := validate(config, flags)
	if len(problems) == 0 && !slices.ContainsFunc(flags, setsFeatures) {
		_, _ = e.begin() // replace returns the error
	}
	return problems
}

func setsFeatures(flag string) bool {
	name, _, _ := strings.Cut(flag, "=")
	return slices.Contains([]string{"feature-gates", "emulated-version", "min-compatibility-version"}, name)
}

// replace begins the hooks, if that has not been done, and keeps a server that is built with config from adding its
// own. It returns what adds them in their place, if the server has their groups.
func (e *earlyHooks) replace(config *genericapiserver.Config) (add func(*genericapiserver.GenericAPIServer) error, err error) {
	hooks, err := e.begin()
	if err != nil {
		return nil, err
	}
	disabled := config.DisabledPostStartHooks
	hooks = slices.DeleteFunc(slices.Clone(hooks), func(h *earlyHook) bool { return disabled.Has(h.name) })
	for _, h := range hooks {
		disabled.Insert(h.name)
	}
	return func(server *genericapiserver.GenericAPIServer) error {
		var errs []error
		for _, h := range hooks {
			disabled.Delete(h.name)
			if slices.Contains(server.ListedPaths(), genericapiserver.APIGroupPrefix+"/"+h.group) {
				errs = append(errs, server.AddPostStartHook(h.name, h.run))
			}
		}
		return errors.Join(errs...)
	}, nil
}
