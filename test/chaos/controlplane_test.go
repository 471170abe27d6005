package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// wardle is the group of Kubernetes' sample-apiserver.
const wardle = "wardle.example.com"

// controlPlane are programs of Kubernetes that work with a site: controllers, the scheduler and an aggregated server.
type controlPlane struct {
	site *site
	// follow makes controllers and scheduler those of the release as which core serves, as far as it can be at any time: none may
	// be newer than core. Without it they are those of the older release.
	follow bool
	// without leaves controllers and scheduler out.
	without     bool
	wardle      *cluster.Process
	controllers []*cluster.Process
	serving     string // their release
	rollouts    atomic.Int64
	since       int64 // rollouts when the controllers were started
}

// work waits until the controllers work. One that loses a request while it starts ends, as it does with kube-apiserver, where the
// kubelet starts it again: moves come when it is up.
func (p *controlPlane) work(ctx context.Context) error {
	return poll(ctx, func() error {
		if n := p.rollouts.Load(); !p.without && n < p.since+2 { // one may have begun before
			return fmt.Errorf("%d rollouts since the controllers were started", n-p.since)
		}
		return nil
	})
}

// join starts the programs and returns what clients do with them.
func (p *controlPlane) join(ctx context.Context, c *clients) (map[string]task, error) {
	if err := p.startWardle(ctx, c); err != nil {
		return nil, fmt.Errorf("aggregated server: %w", err)
	}
	c.written = append(c.written, flunders)
	c.changes[flunders] = map[string][]change{}
	tasks := map[string]task{
		"writer of Flunders": c.writer(flunders, 0, newFlunder),
		"reader of Flunders": c.reader(flunders, namespace, "always-there"),
	}
	if p.without {
		return tasks, nil
	}
	tasks["deployer"] = p.deployer(c)
	return tasks, errors.Join(p.startControllers(ctx, older), p.deploy(ctx, c))
}

// startControllers starts kube-controller-manager and kube-scheduler of a minor release, "" for that of go.mod, in the place of those
// that run. There is one of each: they need no election.
func (p *controlPlane) startControllers(ctx context.Context, release string) error {
	if len(p.controllers) > 0 && p.serving == release {
		return nil
	}
	if err := p.alive(); err != nil {
		return err
	}
	for _, process := range p.controllers {
		process.Kill()
	}
	p.controllers, p.serving, p.since = nil, release, p.rollouts.Load()
	pki := filepath.Join(p.site.DataDir(), "pki")
	for name, args := range map[string][]string{
		"kube-scheduler": nil,
		"kube-controller-manager": {
			"--root-ca-file=" + filepath.Join(pki, "ca.crt"), "--service-account-private-key-file=" + filepath.Join(pki, "sa.key"),
			"--use-service-account-credentials", "--node-monitor-grace-period=2h",
		},
	} {
		path, err := cluster.ToolOf(name, release)
		if err != nil {
			return err
		}
		kubeconfig, err := p.kubeconfig(ctx, "system:"+name)
		if err != nil {
			return err
		}
		process, err := cluster.StartProcess(p.site.Dir, name, path, append(args, "--secure-port=0", "--leader-elect=false", "--kubeconfig="+kubeconfig)...)
		if err != nil {
			return err
		}
		p.controllers = append(p.controllers, process)
	}
	return nil
}

// moved makes controllers and scheduler those of the release as which core serves now.
func (p *controlPlane) moved(ctx context.Context, to release) error {
	if !p.follow || to != final {
		return nil
	}
	return p.startControllers(ctx, "")
}

// moving makes them those that core can have after a move.
func (p *controlPlane) moving(ctx context.Context, from release) error {
	if p.without || from != final {
		return nil
	}
	return p.startControllers(ctx, older)
}

func (p *controlPlane) kubeconfig(ctx context.Context, user string) (string, error) {
	text, err := p.site.Command(ctx, "kubeconfig", "--user", user)
	if err != nil {
		return "", err
	}
	path := filepath.Join(p.site.Dir, strings.ReplaceAll(user, ":", "-")+".kubeconfig")
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// startWardle starts sample-apiserver, with an etcd of its own, and registers it.
func (p *controlPlane) startWardle(ctx context.Context, c *clients) error {
	path, err := cluster.Tool("sample-apiserver")
	if err != nil {
		return err
	}
	kubeconfig, err := p.kubeconfig(ctx, "wardle-server")
	if err != nil {
		return err
	}
	etcd, err := p.site.StartEtcd()
	if err != nil {
		return err
	}
	port, err := cluster.FreePort()
	if err != nil {
		return err
	}
	p.wardle, err = cluster.StartProcess(p.site.Dir, "sample-apiserver", path,
		"--etcd-servers="+etcd, "--bind-address=127.0.0.1", "--secure-port="+port, "--cert-dir="+filepath.Join(p.site.Dir, "wardle"),
		"--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig)
	if err != nil {
		return err
	}
	if err := p.apply(ctx, c, strings.ReplaceAll(wardleObjects, "PORT", port)); err != nil {
		return err
	}
	return poll(ctx, func() error {
		_, err := c.dynamic.Resource(flunders).Namespace(namespace).Create(ctx, newFlunder("always-there", "0"), metav1.CreateOptions{})
		return err
	})
}

// apply creates objects, with "---" between them.
func (p *controlPlane) apply(ctx context.Context, c *clients, manifest string) error {
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.kube.Discovery()))
	for text := range strings.SplitSeq(manifest, "---\n") {
		var u unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			return err
		}
		kind := u.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return err
		}
		var client dynamic.ResourceInterface = c.dynamic.Resource(mapping.Resource)
		if u.GetNamespace() != "" {
			client = c.dynamic.Resource(mapping.Resource).Namespace(u.GetNamespace())
		}
		if _, err := client.Create(ctx, &u, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// wardleObjects are the service, which leads to this machine, and the rights of the server.
const wardleObjects = `{apiVersion: v1, kind: Namespace, metadata: {name: wardle}}
---
{apiVersion: v1, kind: Service, metadata: {name: api, namespace: wardle}, spec: {type: ExternalName, externalName: localhost}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: wardle}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: wardle-server}]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1alpha1.wardle.example.com}
spec: {group: wardle.example.com, version: v1alpha1, groupPriorityMinimum: 1000, versionPriority: 15, insecureSkipTLSVerify: true,
  service: {name: api, namespace: wardle, port: PORT}}
`

const deployment = "web"

// deploy creates a Deployment, whose pods run on the node.
func (p *controlPlane) deploy(ctx context.Context, c *clients) error {
	labels := map[string]string{"app": deployment}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: deployment}}
	d.Spec.Replicas = ptr.To[int32](1)
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels = labels
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i:0"}}
	_, err := c.kube.AppsV1().Deployments(namespace).Create(ctx, d, metav1.CreateOptions{})
	return err
}

// deployer changes the image and the size of the Deployment whenever controllers, scheduler and node are done with the change
// before.
func (p *controlPlane) deployer(c *clients) task {
	client := c.kube.AppsV1().Deployments(namespace)
	since := time.Now()
	return func(ctx context.Context, _ int) error {
		d, err := client.Get(ctx, deployment, metav1.GetOptions{})
		if err != nil {
			return err
		}
		want, s := *d.Spec.Replicas, d.Status
		if s.ObservedGeneration < d.Generation || s.Replicas != want || s.UpdatedReplicas != want || s.AvailableReplicas != want {
			if time.Since(since) > 2*recovery {
				err := fmt.Errorf("%w: the Deployment is not rolled out since %s: %+v", errWrong, since.Format(time.TimeOnly), s)
				since = time.Now() // one such error is enough
				return err
			}
			return nil
		}
		n := p.rollouts.Add(1)
		since = time.Now()
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{"replicas": 1 + n%3, "template": map[string]any{
			"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": fmt.Sprint("i:", n)}}},
		}}})
		if err != nil {
			return err
		}
		_, err = client.Patch(ctx, deployment, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		return err
	}
}

// alive is nil if the programs run.
func (p *controlPlane) alive() error {
	var errs []error
	for _, process := range append([]*cluster.Process{p.wardle}, p.controllers...) {
		select {
		case <-process.Done:
			errs = append(errs, fmt.Errorf("%s has ended by itself:\n%s", process.Name, cluster.Tail(process.Log, 20)))
		default:
		}
	}
	return errors.Join(errs...)
}

// stop ends the programs.
func (p *controlPlane) stop() {
	for _, process := range append([]*cluster.Process{p.wardle}, p.controllers...) {
		if process != nil {
			process.Kill()
		}
	}
}
