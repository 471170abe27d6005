package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// StartKubeAPIServer starts kube-apiserver on an etcd of its own and returns when it
// is ready.
func StartKubeAPIServer(ctx context.Context, o Options) (*Server, error) {
	path, err := ToolOf("kube-apiserver", o.Release)
	if err != nil {
		return nil, err
	}
	k, err := NewKubeAPIServer(o)
	if err != nil {
		return nil, err
	}
	if err := k.Start(ctx, path); err != nil {
		return nil, errors.Join(err, k.Stop(false))
	}
	return k.Server, nil
}

// KubeAPIServer is what a program with the command line of kube-apiserver is started on: an etcd, credentials
// and flags. One program may follow another.
type KubeAPIServer struct {
	*Server
	flags map[string]string
	// common are those of flags that each server of the cluster has.
	common map[string]string
}

// NewKubeAPIServer prepares a start.
func NewKubeAPIServer(o Options) (*KubeAPIServer, error) {
	s, err := newServer("kube-apiserver")
	if err != nil {
		return nil, err
	}
	k := &KubeAPIServer{Server: s, flags: s.commonFlags(o)}
	if err := k.prepare(o); err != nil {
		return nil, errors.Join(err, s.Stop(false))
	}
	return k, nil
}

func (k *KubeAPIServer) prepare(o Options) error {
	port, err := FreePort()
	if err != nil {
		return err
	}
	k.URL = "https://127.0.0.1:" + port
	k.flags["secure-port"] = port
	k.flags["cert-dir"] = k.CertDir()
	if k.common, err = k.commonTo(o); err != nil {
		return err
	}
	maps.Copy(k.flags, k.common)
	if o.Peers {
		k.flags["peer-advertise-ip"], k.flags["peer-advertise-port"] = "127.0.0.1", port
	}
	return nil
}

// commonTo returns the flags that all servers of a cluster have.
func (k *KubeAPIServer) commonTo(o Options) (map[string]string, error) {
	if o.Beside != nil {
		return o.Beside.common, nil
	}
	etcd, err := k.StartEtcd()
	if err != nil {
		return nil, err
	}
	flags := map[string]string{"etcd-servers": etcd}
	if err := k.credentialFlags(flags); err != nil || !o.Peers {
		return flags, err
	}
	servers, err := k.newAuthority("server-ca")
	if err != nil {
		return nil, err
	}
	flags["peer-ca-file"] = servers.file
	flags["tls-cert-file"], flags["tls-private-key-file"], err = servers.server(k.Server, "server")
	return flags, err
}

// CertDir is the directory of --cert-dir.
func (k *KubeAPIServer) CertDir() string { return filepath.Join(k.Dir, "certs") }

// Args is the command line.
func (k *KubeAPIServer) Args() []string {
	var args []string
	for name, value := range k.flags {
		args = append(args, "--"+name+"="+value)
	}
	slices.Sort(args)
	return args
}

// Start starts a program, and returns when it is ready.
func (k *KubeAPIServer) Start(ctx context.Context, path string) error {
	if err := k.Launch(path); err != nil {
		return err
	}
	return k.awaitReady(ctx, func() error { return nil })
}

// Launch starts a program, and does not wait.
func (k *KubeAPIServer) Launch(path string) (err error) {
	k.process, err = StartProcess(k.Dir, k.Name, path, k.Args()...)
	return err
}

// StartEtcd runs etcd in this process, on a Unix socket, and returns its URL. It ends
// with the server. It writes without fsync: nothing here has to survive a power failure.
func (s *Server) StartEtcd() (string, error) {
	client := url.URL{Scheme: "unix", Path: filepath.Join(s.Dir, "etcd.sock")}
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(s.Dir, "etcd")
	cfg.ListenPeerUrls = nil
	cfg.ListenClientUrls = []url.URL{client}
	cfg.AdvertiseClientUrls = []url.URL{client}
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.UnsafeNoFsync = true
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return "", err
	}
	s.closers = append(s.closers, func() error { etcd.Close(); return nil })
	select {
	case <-etcd.Server.ReadyNotify():
		return "unix://" + client.Path, nil
	case <-time.After(readyTimeout):
		return "", fmt.Errorf("etcd is not ready after %s", readyTimeout)
	}
}

// credentialFlags adds what Catena makes for itself: keys for service account tokens,
// and the authorities of clients and of the aggregator.
func (s *Server) credentialFlags(flags map[string]string) error {
	key, _, err := s.newKey("service-account.key")
	if err != nil {
		return err
	}
	clients, err := s.newAuthority("ca")
	if err != nil {
		return err
	}
	proxies, err := s.newAuthority("front-proxy-ca")
	if err != nil {
		return err
	}
	proxyCert, proxyKey, err := proxies.client(s, "front-proxy-client")
	if err != nil {
		return err
	}
	kubeletCert, kubeletKey, err := clients.client(s, "kubelet-client")
	if err != nil {
		return err
	}
	maps.Copy(flags, map[string]string{
		"kubelet-client-certificate":         kubeletCert,
		"kubelet-client-key":                 kubeletKey,
		"service-account-key-file":           key,
		"service-account-signing-key-file":   key,
		"client-ca-file":                     clients.file,
		"requestheader-client-ca-file":       proxies.file,
		"requestheader-allowed-names":        "front-proxy-client",
		"requestheader-username-headers":     "X-Remote-User",
		"requestheader-group-headers":        "X-Remote-Group",
		"requestheader-extra-headers-prefix": "X-Remote-Extra-",
		"proxy-client-cert-file":             proxyCert,
		"proxy-client-key-file":              proxyKey,
	})
	return nil
}
