package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// fault is something that happens to a machine of a fleet.
type fault struct {
	kind  string
	class class
	do    func(ctx context.Context, m *machine) error
	// undo ends a fault that lasts; nil if it does not.
	undo func(ctx context.Context, m *machine) error
	// blocks is set if no machine can serve while it lasts.
	blocks bool
}

func faults() []fault {
	return []fault{
		{kind: "host killed", class: crash,
			do:   func(_ context.Context, m *machine) error { m.killHost(); return nil },
			undo: func(_ context.Context, m *machine) error { return m.startHost() }},
		{kind: "host suspended", class: crash,
			do:   func(_ context.Context, m *machine) error { return m.signal(syscall.SIGSTOP, m.host) },
			undo: func(_ context.Context, m *machine) error { return m.signal(syscall.SIGCONT, m.host) }},
		{kind: "host restarted", class: planned,
			do:   func(_ context.Context, m *machine) error { return m.host.Stop() },
			undo: func(_ context.Context, m *machine) error { return m.startHost() }},
		{kind: "core swapped", class: planned,
			do: func(ctx context.Context, m *machine) error {
				_, err := m.command(ctx, "swap", "core", "--data-dir", m.dataDir())
				return err
			}},
		{kind: "core killed", class: crash,
			do: func(_ context.Context, m *machine) error {
				pid, err := m.stage("core")
				if err != nil {
					return err
				}
				return syscall.Kill(pid, syscall.SIGKILL)
			}},
		{kind: "etcd killed", class: crash,
			do:   func(_ context.Context, m *machine) error { m.etcd.Kill(); return nil },
			undo: func(_ context.Context, m *machine) error { return m.startEtcd() }},
		{kind: "etcd suspended", class: crash,
			do:   func(_ context.Context, m *machine) error { return m.signal(syscall.SIGSTOP, m.etcd) },
			undo: func(_ context.Context, m *machine) error { return m.signal(syscall.SIGCONT, m.etcd) }},
		{kind: "etcd slow", class: planned, do: func(ctx context.Context, m *machine) error { return m.slow(ctx) }},
		{kind: "partition", class: crash,
			do:   func(_ context.Context, m *machine) error { return m.fleet.network.partition(m.index, true) },
			undo: func(_ context.Context, m *machine) error { return m.fleet.network.partition(m.index, false) }},
		{kind: "machine lost", class: crash,
			do:   func(_ context.Context, m *machine) error { m.killHost(); m.etcd.Kill(); return nil },
			undo: func(_ context.Context, m *machine) error { return errors.Join(m.startEtcd(), m.startHost()) }},
		{kind: "no quorum", class: crash, blocks: true,
			do:   func(_ context.Context, m *machine) error { return m.others(syscall.SIGSTOP) },
			undo: func(_ context.Context, m *machine) error { return m.others(syscall.SIGCONT) }},
	}
}

// slow makes the member of etcd run for a part of the time only.
func (m *machine) slow(ctx context.Context) error {
	for end := time.Now().Add(m.fleet.outage); time.Now().Before(end); {
		for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
			if err := errors.Join(m.signal(s, m.etcd), sleep(ctx, 150*time.Millisecond)); err != nil {
				return err
			}
		}
	}
	return nil
}

// others sends a signal to the members of etcd on the other machines.
func (m *machine) others(s syscall.Signal) error {
	var errs []error
	for _, other := range m.fleet.machines {
		if other != m {
			errs = append(errs, other.signal(s, other.etcd))
		}
	}
	return errors.Join(errs...)
}

// startFleet starts a fleet that ends with the test.
func startFleet(t *testing.T) *fleet {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil || os.Geteuid() != 0 {
		t.Skip("network namespaces need root and the command ip")
	}
	dir, err := os.MkdirTemp("", "fleet") // short enough for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("logs are in %s", dir)
			return
		}
		_ = os.RemoveAll(dir)
	})
	f, err := newFleet(dir)
	if err != nil {
		t.Skipf("network namespaces: %v", err)
	}
	t.Cleanup(func() {
		if err := f.stop(); err != nil {
			t.Error(err)
		}
	})
	if err := f.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

// Three hosts are one cluster, and go through every fault once.
func TestEveryFaultOfHosts(t *testing.T) {
	f := startFleet(t)
	checkFleet(t, f)
	before := compactions(t, f)
	began := time.Now()
	playFaults(t, f, func(happen func(fault, *machine)) {
		for i, x := range faults() {
			happen(x, f.machines[i%machines])
			if x.kind == "host restarted" { // one after the other, as an upgrade goes
				happen(x, f.machines[(i+1)%machines])
				happen(x, f.machines[(i+2)%machines])
			}
		}
	})
	// Each host compacts at every interval, unless another has done it.
	if made, most := compactions(t, f)-before, int64(time.Since(began)/compactionInterval)+2; made == 0 || made > most {
		t.Errorf("%d compactions in %s, want 1 to %d", made, time.Since(began).Round(time.Second), most)
	}
	checkFleet(t, f)
}

// compactions returns how often etcd has been compacted.
func compactions(t *testing.T, f *fleet) int64 {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + f.machines[0].address() + ":2379"}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), recovery)
	defer cancel()
	resp, err := client.Get(ctx, "compact_rev_key")
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Kvs) == 0 {
		return 0
	}
	return resp.Kvs[0].Version
}

// Random faults for a given time.
func TestRandomFaultsOfHosts(t *testing.T) {
	if *duration == 0 {
		t.Skip("run it with make chaos, or with -chaos.for")
	}
	f := startFleet(t)
	chosen := *seed
	if chosen == 0 {
		chosen = rand.Uint64N(1 << 32)
	}
	t.Logf("seed %d, %s", chosen, *duration)
	random := rand.New(rand.NewPCG(chosen, 0))
	all := faults()
	if *only != "" {
		all = slices.DeleteFunc(all, func(x fault) bool { return !strings.Contains(x.kind, *only) })
	}
	playFaults(t, f, func(happen func(fault, *machine)) {
		for end := time.Now().Add(*duration); time.Now().Before(end) && !t.Failed(); {
			f.outage = time.Duration(1+random.IntN(60)) * time.Second
			happen(all[random.IntN(len(all))], f.machines[random.IntN(machines)])
		}
	})
	checkFleet(t, f)
}

// playFaults lets faults happen while clients go on behind the balancer, and judges what they saw.
func playFaults(t *testing.T, f *fleet, play func(happen func(fault, *machine))) {
	t.Helper()
	c, err := startClients(t.Context(), f.config, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.stop()
	c.forget()
	r := &report{}
	play(func(x fault, m *machine) {
		began := time.Now()
		if testing.Verbose() {
			fmt.Printf("%s %s on %s\n", began.Format("15:04:05.000"), x.kind, m.name())
		}
		if err := f.suffer(t.Context(), c, x, m); err != nil {
			t.Errorf("%s on %s: %v", x.kind, m.name(), err)
		}
		r.happened(event{kind: x.kind, class: x.class}, m.name(), began, time.Now(), c)
		r.judge(t, c)
	})
	c.stop()
	r.judge(t, c)
	if err := c.verify(t.Context()); err != nil {
		t.Error(err)
	}
	t.Logf("\n%s%s", r, c)
}

// suffer lets a fault happen. While it lasts, each client has a success elsewhere; after it, all machines are ready again.
func (f *fleet) suffer(ctx context.Context, c *clients, x fault, m *machine) error {
	if err := x.do(ctx, m); err != nil {
		return err
	}
	since := time.Now()
	during := func() error { return poll(ctx, func() error { return c.succeededSince(since) }) }
	if x.blocks {
		during = func() error { return sleep(ctx, f.outage) }
	}
	err := during()
	if x.undo != nil {
		err = errors.Join(err, x.undo(ctx, m))
	}
	if err != nil {
		return err
	}
	if err := f.settled(ctx); err != nil {
		return err
	}
	since = time.Now()
	return poll(ctx, func() error { return c.succeededSince(since) })
}

// checkFleet checks what the hosts of a cluster have in common.
func checkFleet(t *testing.T, f *fleet) {
	t.Helper()
	ctx := t.Context()
	var clients []*kubernetes.Clientset
	for _, m := range f.machines {
		client, err := kubernetes.NewForConfig(m.config(cluster.Admin))
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, client)
	}
	for name, check := range map[string]func() error{
		"endpoints of the service kubernetes": func() error { return checkEndpoints(ctx, f, clients[0]) },
		"identity leases":                     func() error { return checkLeases(ctx, clients[0]) },
	} {
		if err := poll(ctx, check); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := checkTokens(ctx, f, clients[0]); err != nil {
		t.Error(err)
	}
	for i := range clients {
		if err := checkWatch(ctx, clients[i], clients[(i+1)%machines]); err != nil {
			t.Errorf("write at %s, watch at the next: %v", f.machines[i].name(), err)
		}
	}
}

func checkEndpoints(ctx context.Context, f *fleet, client kubernetes.Interface) error {
	list, err := client.DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=kubernetes"})
	if err != nil {
		return err
	}
	var got, want []string
	for _, s := range list.Items {
		for _, e := range s.Endpoints {
			got = append(got, e.Addresses...)
		}
	}
	for _, m := range f.machines {
		want = append(want, m.address())
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		return fmt.Errorf("addresses are %q, want %q", got, want)
	}
	return nil
}

// checkLeases is nil if each host has an identity of its own.
func checkLeases(ctx context.Context, client kubernetes.Interface) error {
	leases, err := client.CoordinationV1().Leases("kube-system").List(ctx, metav1.ListOptions{LabelSelector: "apiserver.kubernetes.io/identity=kube-apiserver"})
	if err != nil {
		return err
	}
	if len(leases.Items) != machines {
		return fmt.Errorf("%d identities, want %d", len(leases.Items), machines)
	}
	return nil
}

// checkTokens is nil if all hosts accept a service account's token of the first.
func checkTokens(ctx context.Context, f *fleet, client kubernetes.Interface) error {
	r, err := client.CoreV1().ServiceAccounts("kube-system").CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		_, err = client.CoreV1().ServiceAccounts("kube-system").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if r, err = client.CoreV1().ServiceAccounts("kube-system").CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for _, m := range f.machines {
		config := rest.CopyConfig(m.config(""))
		config.BearerToken = r.Status.Token
		other, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		who, err := other.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("token of %s at %s: %w", f.machines[0].name(), m.name(), err)
		}
		if name := who.Status.UserInfo.Username; name != "system:serviceaccount:kube-system:default" {
			return fmt.Errorf("token of %s at %s is that of %q", f.machines[0].name(), m.name(), name)
		}
	}
	return nil
}

// checkWatch is nil if a write through one host is seen by a watch through another, with the same version.
func checkWatch(ctx context.Context, writer, watcher kubernetes.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, recovery)
	defer cancel()
	list, err := watcher.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	w, err := watcher.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return err
	}
	defer w.Stop()
	o, err := writer.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "written-"}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for e := range w.ResultChan() {
		if seen, ok := e.Object.(*corev1.ConfigMap); ok && seen.Name == o.Name {
			if seen.ResourceVersion != o.ResourceVersion {
				return fmt.Errorf("version %s was written and %s seen", o.ResourceVersion, seen.ResourceVersion)
			}
			return nil
		}
	}
	return fmt.Errorf("%s was not seen", o.Name)
}
