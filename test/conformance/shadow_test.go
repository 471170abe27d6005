package conformance

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/test/internal/cluster"
)

var shadowed = flag.Int("shadowed", 3000, "how many requests of TestShadow are compared")

// shadowTime bounds TestShadow for the default of -shadowed.
const shadowTime = 10 * time.Minute

// Core in the shadow of itself: nothing differs, while writers write, in the requests of the cases and in reads of all resources.
func TestShadow(t *testing.T) {
	t.Parallel()
	p := loadProfile(t, "testdata/default")
	c, err := cluster.StartCatena(t.Context(), cluster.Options{Flags: p.flags})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(t.Failed()); err != nil {
			t.Error(err)
		}
	})
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	command := func(args ...string) string {
		t.Helper()
		out, err := c.Command(t.Context(), args...)
		if err != nil && out == "" {
			t.Fatal(err)
		}
		return out
	}
	command("shadow", "core", "--binary", filepath.Join(bin, "plugins", "catena-stage-core"), "--for", "24h", "--sample", "100%", "--budget", "400%")

	ctx, stop := context.WithCancel(t.Context())
	config := rest.CopyConfig(c.Config(cluster.Admin))
	config.QPS, config.Burst = 200, 200
	var load sync.WaitGroup
	load.Go(func() { replay(ctx, t, p, c.Server) })
	load.Go(func() { readAll(ctx, t, config) })
	for i := range 2 {
		load.Go(func() { writeObjects(ctx, t, config, fmt.Sprintf("shadow-%d", i)) })
	}
	var report struct {
		Results map[string]int
		Ended   string
	}
	for deadline := time.Now().Add(max(shadowTime, time.Duration(*shadowed)*20*time.Millisecond)); ; time.Sleep(time.Second) {
		if err := json.Unmarshal([]byte(command("shadow", "report", "-o", "json")), &report); err != nil {
			t.Fatal(err)
		}
		if report.Results["equal"]+report.Results["different"] >= *shadowed {
			break
		}
		if report.Ended != "" || t.Failed() || time.Now().After(deadline) {
			t.Errorf("not enough was compared: %v", report)
			break
		}
	}
	stop()
	load.Wait()
	command("shadow", "stop")
	text := command("shadow", "report")
	if n := report.Results["different"]; n > 0 || !strings.HasSuffix(text, "no differences\n") {
		t.Errorf("%d requests differ:\n%s", n, text)
	}
	if compared := report.Results["equal"]; report.Results["moved"] > compared/10 {
		t.Errorf("too many could not be compared: %v", report.Results)
	}
	t.Logf("%s", text)
}

// replay sends the requests of the cases over and over. Most of those that write fail after the first time: what matters is that both
// processes respond alike.
func replay(ctx context.Context, t *testing.T, p profile, s *cluster.Server) {
	client, err := newClient(s)
	if err != nil {
		t.Error(err)
		return
	}
	for ctx.Err() == nil {
		for _, file := range p.files {
			for _, tc := range file.cases {
				if tc.Until != "" || tc.During != nil || tc.Meanwhile != nil || tc.Events > 0 || tc.Raw != "" {
					continue
				}
				_, _ = client.run(ctx, tc)
			}
		}
	}
}

// readAll reads each resource that is served, in several ways.
func readAll(ctx context.Context, t *testing.T, config *rest.Config) {
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Error(err)
		return
	}
	get := func(path, accept string) []byte {
		body, _ := d.RESTClient().Get().RequestURI(path).SetHeader("Accept", accept).Do(ctx).Raw()
		return body
	}
	for ctx.Err() == nil {
		lists, err := d.ServerPreferredResources()
		if err != nil && ctx.Err() == nil && len(lists) == 0 {
			t.Error(err)
			return
		}
		for _, list := range lists {
			prefix := "/apis/"
			if !strings.Contains(list.GroupVersion, "/") {
				prefix = "/api/"
			}
			get(prefix+list.GroupVersion, "application/json")
			for _, r := range list.APIResources {
				path := prefix + list.GroupVersion + "/" + r.Name
				if strings.Contains(r.Name, "/") || ctx.Err() != nil {
					continue
				}
				body := get(path, "application/json")
				get(path+"?resourceVersion=0", "application/vnd.kubernetes.protobuf")
				get(path+"?limit=3&labelSelector=a", "application/json;as=Table;g=meta.k8s.io;v=v1")
				get(path+"?limit=3", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
				var objects metav1.PartialObjectMetadataList
				if json.Unmarshal(body, &objects) != nil {
					continue
				}
				for _, o := range objects.Items[:min(len(objects.Items), 5)] {
					one := path + "/" + o.Name
					if o.Namespace != "" {
						one = prefix + list.GroupVersion + "/namespaces/" + o.Namespace + "/" + r.Name + "/" + o.Name
					}
					get(one, "application/json")
					get(one+"?resourceVersion=0", "application/json;as=Table;g=meta.k8s.io;v=v1")
					get(one+"-missing", "application/json")
				}
			}
		}
	}
}

// writeObjects creates, changes, reads and deletes objects.
func writeObjects(ctx context.Context, t *testing.T, config *rest.Config, name string) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Error(err)
		return
	}
	maps, deployments, services := client.CoreV1().ConfigMaps("default"), client.AppsV1().Deployments("default"), client.CoreV1().Services("default")
	check := func(err error) {
		if err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}
	labels := map[string]string{"a": name}
	for n := 0; ctx.Err() == nil; n++ {
		object := metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, n%3), Labels: labels}
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: object}, metav1.CreateOptions{})
		check(err)
		_, err = deployments.Create(ctx, &appsv1.Deployment{ObjectMeta: object, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
		}}, metav1.CreateOptions{})
		check(err)
		_, err = services.Create(ctx, &corev1.Service{ObjectMeta: object, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{})
		check(err)
		for i := range 5 {
			m, err := maps.Get(ctx, object.Name, metav1.GetOptions{})
			check(err)
			if err == nil {
				m.Data = map[string]string{"n": fmt.Sprint(i)}
				_, err = maps.Update(ctx, m, metav1.UpdateOptions{})
				check(err)
			}
			if _, err = services.Get(ctx, object.Name, metav1.GetOptions{ResourceVersion: "0"}); !apierrors.IsNotFound(err) {
				check(err) // from the watch cache, which may be older than the service
			}
			_, err = deployments.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
			check(err)
		}
		check(maps.Delete(ctx, object.Name, metav1.DeleteOptions{}))
		check(deployments.Delete(ctx, object.Name, metav1.DeleteOptions{}))
		check(services.Delete(ctx, object.Name, metav1.DeleteOptions{}))
	}
}
