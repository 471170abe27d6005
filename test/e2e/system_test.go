package e2e

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/catena-dev/catena/test/internal/cluster"
	"github.com/catena-dev/catena/test/internal/kubelet"
)

// nodeName is the node of the shared cluster.
const nodeName = "node-1"

// system is Catena and the programs around it.
type system struct {
	*cluster.Catena
	config  *rest.Config // of an administrator
	client  kubernetes.Interface
	users   map[string]string // paths of kubeconfigs by the names of users with a token
	daemons []*cluster.Process
	node    *kubelet.Kubelet
}

// startSystem starts Catena and then the parts.
func startSystem(ctx context.Context, o cluster.Options, parts ...func(*system, context.Context) error) (*system, error) {
	c, err := cluster.StartCatena(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &system{Catena: c, config: c.Config(cluster.Admin), users: map[string]string{}}
	for _, start := range append([]func(*system, context.Context) error{(*system).makeClients}, parts...) {
		if err := start(s, ctx); err != nil {
			return nil, errors.Join(err, s.stop(true))
		}
	}
	return s, nil
}

func (s *system) makeClients(context.Context) error {
	var err error
	for _, user := range []string{cluster.Admin, cluster.Alice, cluster.Bob} {
		if s.users[user], err = s.Kubeconfig(user); err != nil {
			return err
		}
	}
	s.client, err = kubernetes.NewForConfig(s.config)
	return err
}

func (s *system) startControllers(context.Context) error {
	return s.startDaemon("kube-controller-manager",
		"--root-ca-file="+s.pki("ca.crt"), "--service-account-private-key-file="+s.pki("sa.key"),
		"--cluster-signing-cert-file="+s.pki("ca.crt"), "--cluster-signing-key-file="+s.pki("ca.key"),
		"--use-service-account-credentials", "--node-monitor-grace-period=1h", "--resource-quota-sync-period=2s")
}

func (s *system) startScheduler(context.Context) error { return s.startDaemon("kube-scheduler") }

func (s *system) startFirstNode(ctx context.Context) error {
	var err error
	s.node, err = s.startNode(ctx, kubelet.Options{Node: nodeName})
	return err
}

// leadership lasts: one who cannot renew it in time ends, and a busy machine must not
// make the only one end.
var leadership = []string{"--leader-elect-lease-duration=10m", "--leader-elect-renew-deadline=9m"}

// startDaemon starts a program of Kubernetes with a client certificate for the user
// that its rights are made for.
func (s *system) startDaemon(name string, args ...string) error {
	path, err := cluster.Tool(name)
	if err != nil {
		return err
	}
	kubeconfig, err := s.certificate("system:" + name)
	if err != nil {
		return err
	}
	p, err := cluster.StartProcess(s.Dir, name, path, slices.Concat([]string{"--kubeconfig=" + kubeconfig, "--secure-port=0"}, leadership, args)...)
	if err != nil {
		return err
	}
	s.daemons = append(s.daemons, p)
	return nil
}

// startNode adds a node to the cluster, with the identity of a kubelet.
func (s *system) startNode(ctx context.Context, o kubelet.Options) (*kubelet.Kubelet, error) {
	kubeconfig, err := s.certificate("system:node:"+o.Node, "system:nodes")
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(s.pki("ca.crt"))
	if err != nil {
		return nil, err
	}
	o.ClientCA = x509.NewCertPool()
	o.ClientCA.AppendCertsFromPEM(ca)
	return kubelet.Start(ctx, config, o)
}

// certificate writes a kubeconfig with a client certificate, made by "catena kubeconfig".
func (s *system) certificate(user string, groups ...string) (string, error) {
	bin, err := cluster.Bin()
	if err != nil {
		return "", err
	}
	args := []string{"kubeconfig", "--data-dir", s.DataDir(), "--user", user}
	for _, g := range groups {
		args = append(args, "--group", g)
	}
	cmd := exec.Command(filepath.Join(bin, "catena"), args...)
	cmd.Env = cluster.Environ()
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return "", fmt.Errorf("catena kubeconfig: %w", err)
	}
	file, err := os.CreateTemp(s.Dir, "*.kubeconfig")
	if err != nil {
		return "", err
	}
	defer file.Close()
	_, err = file.Write(out)
	return file.Name(), err
}

func (s *system) pki(name string) string { return filepath.Join(s.DataDir(), "pki", name) }

// stop ends everything, the clients first.
func (s *system) stop(failed bool) error {
	if s.node != nil {
		s.node.Stop()
	}
	for _, p := range s.daemons {
		select {
		case <-p.Done:
			fmt.Printf("%s had ended by itself:\n%s\n", p.Name, cluster.Tail(p.Log, 30))
			failed = true
		default:
			p.Kill()
		}
		if failed {
			fmt.Printf("--- log of %s\n%s\n---\n", p.Name, cluster.Tail(p.Log, 15))
		}
	}
	return s.Stop(failed)
}
