package apistage_test

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/apistage"
	"github.com/catena-dev/catena/sdk/stagetest"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// deadline bounds what a test waits for.
const deadline = 60 * time.Second

//go:embed widgets_test.go
var widgetSource string

// widgets is a group with all that a kind can have.
func widgets() apistage.Group {
	return apistage.Group{
		Name:        "widgets",
		APIVersion:  "widgets.test/v1",
		TypeSources: []string{widgetSource},
		Types:       []runtime.Object{&Paint{}},
		Resources: []apistage.Resource{apistage.Kind[*Widget]{
			List:       &WidgetList{},
			ShortNames: []string{"wd"},
			Categories: []string{"all"},
			Default: func(w *Widget) {
				if w.Spec.Color == "" {
					w.Spec.Color = "red"
				}
			},
			Validate: func(_ context.Context, w, old *Widget) field.ErrorList {
				if w.Spec.Replicas < 0 {
					return field.ErrorList{field.Invalid(field.NewPath("spec", "replicas"), w.Spec.Replicas, "must not be negative")}
				}
				if old != nil && old.Spec.Color == "gold" && w.Spec.Color != "gold" {
					return field.ErrorList{field.Forbidden(field.NewPath("spec", "color"), "gold stays gold")}
				}
				return nil
			},
			Warnings: func(_ context.Context, w, _ *Widget) []string {
				if w.Spec.Color == "puce" {
					return []string{"puce is out of fashion"}
				}
				return nil
			},
			Columns: []apistage.Column[*Widget]{
				{Name: "Color", Value: func(w *Widget) any { return w.Spec.Color }},
				{Name: "Replicas", Type: "integer", Wide: true, Value: func(w *Widget) any { return int64(w.Spec.Replicas) }},
			},
			Fields: map[string]func(*Widget) string{"spec.color": func(w *Widget) string { return w.Spec.Color }},
			Status: true,
			Scale: &apistage.Scale[*Widget]{
				Replicas: func(w *Widget) *int32 { return &w.Spec.Replicas },
				Current:  func(w *Widget) (int32, string) { return w.Status.Ready, "widget=" + w.Name },
			},
			Subresources: map[string]apistage.Subresource{
				"paint":   apistage.Action(paint),
				"picture": apistage.Connect(picture, http.MethodGet),
				"echo":    apistage.Connect(echo, http.MethodPost),
			},
		}},
	}
}

// paint changes the color of a widget.
func paint(ctx context.Context, call apistage.Call[*Widget], in *Paint, options *metav1.CreateOptions) (runtime.Object, error) {
	w := call.Object
	w.Spec.Color = in.Color
	changed, _, err := call.Store.Update(ctx, w.Name, apistage.Replace(w), nil, nil, false, &metav1.UpdateOptions{DryRun: options.DryRun})
	return changed, err
}

// picture is no object.
func picture(call apistage.Call[*Widget], w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "image/svg+xml")
	fmt.Fprintf(w, "<svg fill=%q>%s</svg>", call.Object.Spec.Color, r.URL.Query().Get("title"))
}

// echo answers while it reads.
func echo(call apistage.Call[*Widget], w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s: ", call.Object.Name)
	_, _ = io.Copy(w, r.Body)
}

// aloneFlags are those of a server without rights and without other stages.
func aloneFlags(etcd string) []string {
	return []string{
		"authorization-mode=AlwaysAllow", "etcd-servers=" + etcd, "storage-media-type=application/vnd.kubernetes.protobuf",
		"feature-gates=OnlyKubeAPIServerHasIt=true",
		"disable-admission-plugins=NamespaceLifecycle,MutatingAdmissionPolicy,MutatingAdmissionWebhook,ValidatingAdmissionPolicy,ValidatingAdmissionWebhook,ResourceQuota",
	}
}

// served is a group that a test talks to.
type served struct {
	*stagetest.Stage
	config *rest.Config
	client dynamic.ResourceInterface
}

var widgetResource = schema.GroupVersionResource{Group: "widgets.test", Version: "v1", Resource: "widgets"}

// serveGroup runs a group alone, with its post-start hooks.
func serveGroup(t *testing.T, group apistage.Group, etcd string, flags ...string) *served {
	t.Helper()
	stage := stagetest.Start(t, group.Stage(), stagetest.Options{
		Flags: append(aloneFlags(etcd), flags...),
		User:  &sdk.User{Name: "alice", Groups: []string{"system:authenticated"}},
	})
	for _, hook := range stage.Prepared.PostStartHooks {
		if _, err := stage.RPC.RunPostStartHook(t.Context(), &stagev1.RunHookRequest{Name: hook}); err != nil {
			t.Fatal(err)
		}
	}
	s := &served{Stage: stage, config: &rest.Config{Host: stage.URL, QPS: -1}}
	s.client = dynamic.NewForConfigOrDie(s.config).Resource(widgetResource).Namespace("default")
	return s
}

// get returns the body of a response.
func (s *served) get(t *testing.T, path string, headers ...string) string {
	t.Helper()
	_, body := s.do(t, http.MethodGet, path, "", headers...)
	return body
}

// do makes a request; headers are keys and values in turn.
func (s *served) do(t *testing.T, method, path, body string, headers ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, stringsReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}
