package clients

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// startEnvironment starts the control plane of an environment, which finds its programs as in any project that
// uses envtest, and stops it at the end of the test. The test has to ask for other programs before that.
func startEnvironment(t *testing.T, e *envtest.Environment) {
	t.Helper()
	log.SetLogger(logr.Discard())
	t.Setenv("TEST_ASSET_KUBE_APISERVER", kubeAPIServer(t))
	t.Setenv("TEST_ASSET_ETCD", built(t, "tools", "etcd"))
	t.Setenv("TEST_ASSET_KUBECTL", built(t, "tools", "kubectl"))
	withoutVariable(t, "CATENA_BIN") // or Catena would treat it as configuration
	e.ControlPlaneStartTimeout, e.ControlPlaneStopTimeout = patience, patience
	_, err := e.Start()
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// withoutVariable removes a variable from the environment for the time of the test.
func withoutVariable(t *testing.T, name string) {
	t.Helper()
	t.Setenv(name, "") // brings the old value back in the end
	if err := os.Unsetenv(name); err != nil {
		t.Fatal(err)
	}
}

// A manager works as its author means it to: the cache, a reconciler, webhooks that default, validate and convert.
func TestManager(t *testing.T) {
	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(types); err != nil {
			t.Fatal(err)
		}
	}
	addWidgets(types)
	e := &envtest.Environment{Scheme: types, CRDs: []*apiextensionsv1.CustomResourceDefinition{widgetDefinition()}, WebhookInstallOptions: widgetWebhooks()}
	startEnvironment(t, e)
	mgr := startManager(t, e)
	ctx, c := t.Context(), mgr.GetClient()

	t.Run("default and reconcile", func(t *testing.T) {
		w := &Widget{ObjectMeta: metav1.ObjectMeta{Name: "plain", Namespace: "default"}}
		if err := c.Create(ctx, w); err != nil {
			t.Fatal(err)
		}
		if w.Size != defaultSize {
			t.Errorf("size is %d, want %d by default", w.Size, defaultSize)
		}
		awaitReconciled(t, c, "plain", defaultSize)
		eventually(t, "update", func() error { return resize(ctx, c, w.Name, 5) })
		awaitReconciled(t, c, "plain", 5)
	})
	t.Run("validate", func(t *testing.T) {
		w := &Widget{ObjectMeta: metav1.ObjectMeta{Name: "large", Namespace: "default"}, Size: 1000}
		if err := c.Create(ctx, w); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), errTooLarge.Error()) {
			t.Errorf("a widget that is too large: %v", err)
		}
	})
	t.Run("convert", func(t *testing.T) {
		w := &OldWidget{ObjectMeta: metav1.ObjectMeta{Name: "old", Namespace: "default"}, Size: "7"}
		if err := c.Create(ctx, w); err != nil {
			t.Fatal(err)
		}
		awaitReconciled(t, c, "old", 7)
		var stored Widget
		if err := mgr.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(w), &stored); err != nil || stored.Size != 7 {
			t.Errorf("in the other version the size is %d: %v", stored.Size, err)
		}
		w = &OldWidget{ObjectMeta: metav1.ObjectMeta{Name: "odd", Namespace: "default"}, Size: "seven"}
		if err := c.Create(ctx, w); err == nil || !strings.Contains(err.Error(), "conversion webhook") {
			t.Errorf("a widget that cannot be converted: %v", err)
		}
	})
	t.Run("delete", func(t *testing.T) {
		if err := c.Delete(ctx, &Widget{ObjectMeta: metav1.ObjectMeta{Name: "plain", Namespace: "default"}}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the cache still has the widget", func() error {
			err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "plain"}, &Widget{})
			if err == nil {
				return errors.New("found")
			}
			return client.IgnoreNotFound(err)
		})
	})
}

// startManager starts a manager with the reconciler and the webhooks, and returns when its cache and webhooks serve.
func startManager(t *testing.T, e *envtest.Environment) manager.Manager {
	t.Helper()
	hooks := e.WebhookInstallOptions
	mgr, err := manager.New(e.Config, manager.Options{
		Scheme:  e.Scheme,
		Metrics: server.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: hooks.LocalServingHost, Port: hooks.LocalServingPort, CertDir: hooks.LocalServingCertDir,
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := builder.WebhookManagedBy(mgr, &Widget{}).WithDefaulter(widgetAdmission{}).WithValidator(widgetAdmission{}).Complete(); err != nil {
		t.Fatal(err)
	}
	if err := builder.ControllerManagedBy(mgr).For(&Widget{}).Owns(&corev1.ConfigMap{}).Complete(&widgetReconciler{mgr.GetClient()}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	eventually(t, "webhooks", func() error { return mgr.GetWebhookServer().StartedChecker()(nil) })
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("the cache does not become ready")
	}
	return mgr
}

// resize changes the size of a widget that the cache has. It may be too old.
func resize(ctx context.Context, c client.Client, name string, size int) error {
	w := &Widget{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, w); err != nil {
		return err
	}
	w.Size = size
	return c.Update(ctx, w)
}

// awaitReconciled waits until the reconciler has seen the widget with that size, and the cache what it has written.
func awaitReconciled(t *testing.T, c client.Client, name string, size int) {
	t.Helper()
	key, want := client.ObjectKey{Namespace: "default", Name: name}, fmt.Sprintf("size %d", size)
	eventually(t, "widget "+name, func() error {
		var w Widget
		var owned corev1.ConfigMap
		if err := errors.Join(c.Get(t.Context(), key, &w), c.Get(t.Context(), key, &owned)); err != nil {
			return err
		}
		if w.Status != want || owned.Data["status"] != want || !metav1.IsControlledBy(&owned, &w) {
			return fmt.Errorf("status is %q, and in the ConfigMap %q; want %q", w.Status, owned.Data["status"], want)
		}
		return nil
	})
}

// widgetReconciler writes the size of a widget into its status, and into a ConfigMap that it owns.
type widgetReconciler struct{ client.Client }

// Reconcile implements reconcile.Reconciler.
func (r *widgetReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var w Widget
	if err := r.Get(ctx, req.NamespacedName, &w); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	status := fmt.Sprintf("size %d", w.Size)
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, owned, func() error {
		owned.Data = map[string]string{"status": status}
		return controllerutil.SetControllerReference(&w, owned, r.Scheme())
	})
	if err != nil || w.Status == status {
		return reconcile.Result{}, err
	}
	w.Status = status
	return reconcile.Result{}, r.Update(ctx, &w)
}

const defaultSize = 3

var errTooLarge = errors.New("size must be below 100")

// widgetAdmission defaults and validates widgets.
type widgetAdmission struct{}

// Default implements admission.Defaulter.
func (widgetAdmission) Default(_ context.Context, w *Widget) error {
	if w.Size == 0 {
		w.Size = defaultSize
	}
	return nil
}

// ValidateCreate implements admission.Validator.
func (widgetAdmission) ValidateCreate(_ context.Context, w *Widget) (admission.Warnings, error) {
	if w.Size >= 100 {
		return nil, errTooLarge
	}
	return nil, nil
}

// ValidateUpdate implements admission.Validator.
func (a widgetAdmission) ValidateUpdate(ctx context.Context, _, w *Widget) (admission.Warnings, error) {
	return a.ValidateCreate(ctx, w)
}

// ValidateDelete implements admission.Validator.
func (widgetAdmission) ValidateDelete(context.Context, *Widget) (admission.Warnings, error) {
	return nil, nil
}

// widgetWebhooks are the configurations of the webhooks. envtest adds where they serve.
func widgetWebhooks() envtest.WebhookInstallOptions {
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{widgetGroup}, APIVersions: []string{"v2"}, Resources: []string{"widgets"}},
	}}
	at := func(path string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
			Namespace: "default", Name: "webhooks", Path: ptr.To(path + "-clients-catena-dev-v2-widget"),
		}}
	}
	meta, none := metav1.ObjectMeta{Name: "widgets." + widgetGroup}, ptr.To(admissionregistrationv1.SideEffectClassNone)
	return envtest.WebhookInstallOptions{
		MutatingWebhooks: []*admissionregistrationv1.MutatingWebhookConfiguration{{ObjectMeta: meta, Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: meta.Name, ClientConfig: at("/mutate"), Rules: rules, SideEffects: none, AdmissionReviewVersions: []string{"v1"},
		}}}},
		ValidatingWebhooks: []*admissionregistrationv1.ValidatingWebhookConfiguration{{ObjectMeta: meta, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: meta.Name, ClientConfig: at("/validate"), Rules: rules, SideEffects: none, AdmissionReviewVersions: []string{"v1"},
		}}}},
	}
}
