package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// fleet is a cluster of several machines, each with a host and a member of etcd, which the host uses, as kubeadm
// stacks them.
type fleet struct {
	dir      string
	network  *network
	machines []*machine
	balancer *balancer
	ca       []byte
	// outage is how long a fault lasts that keeps all machines from serving, or slows one down.
	outage time.Duration
}

// machine is one of a fleet.
type machine struct {
	fleet      *fleet
	index      int
	etcd, host *cluster.Process
}

const machines = 3

// compactionInterval is short, so that there are several compactions, and clients that resume come before the next.
const compactionInterval = 30 * time.Second

// newFleet makes a fleet of which nothing runs yet.
func newFleet(dir string) (*fleet, error) {
	f := &fleet{dir: dir, outage: 5 * time.Second}
	var err error
	if f.network, err = newNetwork(machines); err != nil {
		return nil, err
	}
	for i := range machines {
		f.machines = append(f.machines, &machine{fleet: f, index: i})
	}
	return f, os.WriteFile(filepath.Join(dir, "tokens.csv"), []byte(cluster.Tokens), 0o600)
}

// start starts everything. The hosts after the first one join it.
func (f *fleet) start(ctx context.Context) error {
	for _, m := range f.machines {
		if err := m.startEtcd(); err != nil {
			return err
		}
	}
	first := f.machines[0]
	if err := first.startHost(); err != nil {
		return err
	}
	if err := poll(ctx, func() (err error) {
		f.ca, err = os.ReadFile(filepath.Join(first.dataDir(), "pki", "ca.crt"))
		if err == nil {
			err = first.ready(ctx)
		}
		return err
	}); err != nil {
		return errors.Join(err, errors.New(cluster.Tail(first.host.Log, 30)))
	}
	for _, m := range f.machines[1:] {
		if err := m.join(ctx); err != nil {
			return err
		}
		if err := m.startHost(); err != nil {
			return err
		}
	}
	if err := f.settled(ctx); err != nil {
		return err
	}
	var addresses []string
	for _, m := range f.machines {
		addresses = append(addresses, m.address()+":6443")
	}
	var err error
	f.balancer, err = startBalancer(f.machines[0].config(cluster.Admin), addresses...)
	if err != nil {
		return err
	}
	return poll(ctx, f.balancer.ready)
}

// settled waits until all machines are ready.
func (f *fleet) settled(ctx context.Context) error {
	return poll(ctx, func() error {
		var errs []error
		for _, m := range f.machines {
			errs = append(errs, m.ready(ctx))
		}
		return errors.Join(errs...)
	})
}

// config is the configuration of a client of all machines.
func (f *fleet) config(user string) *rest.Config {
	c := f.machines[0].config(user)
	c.Host = f.balancer.url()
	return c
}

// stop ends everything.
func (f *fleet) stop() error {
	var errs []error
	if f.balancer != nil {
		f.balancer.close()
	}
	for _, m := range f.machines {
		errs = append(errs, f.network.partition(m.index, false))
		_ = m.signal(syscall.SIGCONT, m.host, m.etcd)
		if m.host != nil {
			errs = append(errs, m.host.Stop())
		}
	}
	for _, m := range f.machines {
		if m.etcd != nil {
			m.etcd.Kill()
		}
	}
	return errors.Join(append(errs, f.network.remove(machines))...)
}

func (m *machine) name() string    { return fmt.Sprintf("machine-%d", m.index) }
func (m *machine) address() string { return m.fleet.network.address(m.index + 1) }
func (m *machine) dataDir() string { return filepath.Join(m.fleet.dir, m.name()) }

func (m *machine) run(name, program string, args ...string) (*cluster.Process, error) {
	path, all := m.fleet.network.in(m.index, m.name(), program, args...)
	return cluster.StartProcess(m.fleet.dir, name+fmt.Sprint(m.index), path, all...)
}

func (m *machine) startEtcd() error {
	program, err := cluster.Tool("etcd")
	if err != nil {
		return err
	}
	var members []string
	for _, other := range m.fleet.machines {
		members = append(members, fmt.Sprintf("%s=http://%s:2380", other.name(), other.address()))
	}
	peer, client := "http://"+m.address()+":2380", "http://127.0.0.1:2379"
	m.etcd, err = m.run("etcd", program, "--name", m.name(), "--data-dir", filepath.Join(m.fleet.dir, "etcd-"+m.name()),
		"--initial-advertise-peer-urls", peer, "--listen-peer-urls", peer, "--advertise-client-urls", client, "--listen-client-urls", client+",http://"+m.address()+":2379",
		"--initial-cluster", strings.Join(members, ","), "--unsafe-no-fsync", "--log-level", "warn")
	return err
}

// settings are the flags of the host's configuration.
func (m *machine) settings() []string {
	return []string{"--config", filepath.Join(cluster.Root(), "configs", "kube-apiserver.yaml"), "--data-dir", m.dataDir(), "--set", "store.endpoints=http://127.0.0.1:2379"}
}

func (m *machine) startHost() error {
	bin, err := cluster.Bin()
	if err != nil {
		return err
	}
	args := append([]string{"serve"}, m.settings()...)
	for _, set := range []string{
		"pluginDirs=" + filepath.Join(bin, "plugins"), "log.stageLevel=warn", "apiserver.token-auth-file=" + filepath.Join(m.fleet.dir, "tokens.csv"),
		"store.compactionInterval=" + compactionInterval.String(), "apiserver.bind-address=0.0.0.0", "apiserver.advertise-address=" + m.address(), "apiserver.shutdown-delay-duration=2s",
		"apiserver.service-account-issuer=https://kubernetes.default.svc.cluster.local",
	} {
		args = append(args, "--set", set)
	}
	m.host, err = m.run("host", filepath.Join(bin, "catena"), args...)
	return err
}

// command runs a command of catena on the machine.
func (m *machine) command(ctx context.Context, args ...string) (string, error) {
	bin, err := cluster.Bin()
	if err != nil {
		return "", err
	}
	path, all := m.fleet.network.in(m.index, m.name(), filepath.Join(bin, "catena"), args...)
	cmd := exec.CommandContext(ctx, path, all...)
	cmd.Dir, cmd.Env = cluster.Root(), cluster.Environ()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("catena %s on %s: %w: %s", args[0], m.name(), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// join takes the keys of the first machine.
func (m *machine) join(ctx context.Context) error {
	token, err := m.fleet.machines[0].command(ctx, "token", "create", "--data-dir", m.fleet.machines[0].dataDir())
	if err != nil {
		return err
	}
	_, err = m.command(ctx, append([]string{"join", token}, m.settings()...)...)
	return err
}

// config is the configuration of a client of this machine alone.
func (m *machine) config(user string) *rest.Config {
	return &rest.Config{
		Host: "https://" + m.address() + ":6443", BearerToken: user + "-token", QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: m.fleet.ca},
	}
}

// ready is nil if the host is ready.
func (m *machine) ready(ctx context.Context) error {
	return cluster.Ready(ctx, m.config(cluster.Admin))
}

// signal sends a signal to processes that run.
func (m *machine) signal(s syscall.Signal, processes ...*cluster.Process) error {
	var errs []error
	for _, p := range processes {
		if p != nil {
			errs = append(errs, p.Signal(s))
		}
	}
	return errors.Join(errs...)
}

// killHost ends the host and all of its stages at once.
func (m *machine) killHost() {
	children := cluster.Children(m.host.PID())
	m.host.Kill()
	for pid := range children {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// stage returns the process that serves for a stage.
func (m *machine) stage(name string) (int, error) {
	for pid, command := range cluster.Children(m.host.PID()) {
		if command == "catena-stage-"+name {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("stage %s on %s has no process", name, m.name())
}
