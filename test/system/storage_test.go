package system

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/catena-dev/catena/test/internal/cluster"
)

func store(ctx context.Context, client kubernetes.Interface, name, value string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := client.CoreV1().ConfigMaps("default").Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": value}}, metav1.CreateOptions{})
	return err
}

// cached returns the names of the ConfigMaps that a list from the watch cache has.
func cached(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	list, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err.Error()
	}
	var names []string
	for _, o := range list.Items {
		if o.Name != "kube-root-ca.crt" {
			names = append(names, o.Name)
		}
	}
	return strings.Join(names, " ")
}

func logOf(t *testing.T, c *cluster.Catena) string {
	t.Helper()
	text, err := os.ReadFile(c.Process().Log)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// An etcd that does not respond, and one that comes back with the data of a backup: the server goes on by itself, and says what
// it waits for.
func TestEtcdThatIsAwayAndRestored(t *testing.T) {
	t.Parallel()
	etcd := startExternalEtcd(t)
	c := catena(t, cluster.Options{Set: []string{"store.endpoints=" + etcd.url}})
	client := clientset(t, c.Server, cluster.Admin)
	for _, name := range []string{"one", "two"} {
		if err := store(t.Context(), client, name, ""); err != nil {
			t.Fatal(err)
		}
	}

	if err := cluster.Suspend(etcd.process.PID()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the log says that etcd does not respond", func() bool { return strings.Contains(logOf(t, c), "etcd does not respond: requests that need it wait") })
	if err := etcd.process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the log says that etcd responds", func() bool { return strings.Contains(logOf(t, c), "etcd responds again") })
	eventually(t, "writes succeed", func() bool { return store(t.Context(), client, "three", "") == nil })

	etcd.restore(t, client)
	eventually(t, "the log says that etcd was restored", func() bool { return strings.Contains(logOf(t, c), "etcd has been restored from a backup") })
	eventually(t, "the watch cache has what etcd has", func() bool { return cached(t, client) == "one three two" })
	eventually(t, "writes succeed", func() bool { return store(t.Context(), client, "five", "") == nil })
	eventually(t, "the watch cache has the write", func() bool { return cached(t, client) == "five one three two" })
}

// restore brings back the data of now, after writes that the host has seen.
func (e *externalEtcd) restore(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	restart := func(data func()) {
		e.process.Kill()
		data()
		e.start(t)
	}
	backup := e.data() + ".backup"
	restart(func() {
		if err := os.CopyFS(backup, os.DirFS(e.data())); err != nil {
			t.Fatal(err)
		}
	})
	for i, end := 0, time.Now().Add(5*time.Second); time.Now().Before(end); i++ { // the host looks each two seconds
		eventually(t, "a write succeeds", func() bool {
			err := store(t.Context(), client, fmt.Sprint("lost-", i), "")
			return err == nil || apierrors.IsAlreadyExists(err)
		})
	}
	restart(func() {
		if err := os.RemoveAll(e.data()); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(backup, e.data()); err != nil {
			t.Fatal(err)
		}
	})
}

// An embedded etcd that is full refuses writes, and accepts them again when objects have been deleted.
func TestFullEtcd(t *testing.T) {
	t.Parallel()
	c := catena(t, cluster.Options{Set: []string{"store.quotaBytes=16777216"}})
	client := clientset(t, c.Server, cluster.Admin)
	value := strings.Repeat("v", 1<<20-1000)
	n := 0
	eventually(t, "etcd is full", func() bool {
		err := store(t.Context(), client, fmt.Sprint("large-", n), value)
		if err == nil || apierrors.IsAlreadyExists(err) { // from a write whose response came too late
			n++
		}
		return err != nil && strings.Contains(err.Error(), "database space exceeded")
	})
	eventually(t, "the log says that etcd is full", func() bool {
		return strings.Contains(logOf(t, c), "etcd has reached its quota and refuses writes: delete objects")
	})
	if got := cached(t, client); !strings.Contains(got, "large-0") {
		t.Errorf("a full etcd is not read: %s", got)
	}
	for i := range n / 2 {
		eventually(t, "an object is deleted", func() bool {
			err := client.CoreV1().ConfigMaps("default").Delete(t.Context(), fmt.Sprint("large-", i), metav1.DeleteOptions{})
			return err == nil || apierrors.IsNotFound(err)
		})
	}
	eventually(t, "etcd accepts writes", func() bool { return store(t.Context(), client, "another", value) == nil })
	eventually(t, "the log says so", func() bool { return strings.Contains(logOf(t, c), "etcd accepts writes again") })
}
