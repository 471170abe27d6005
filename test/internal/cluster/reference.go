package cluster

import (
	"context"
	"errors"
	"net/url"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"k8s.io/client-go/util/keyutil"
)

// StartKubeAPIServer starts kube-apiserver on an etcd of its own and returns when it
// is ready.
func StartKubeAPIServer(ctx context.Context, o Options) (*Server, error) {
	s, err := newServer("kube-apiserver")
	if err != nil {
		return nil, err
	}
	if err := s.startKubeAPIServer(ctx, o); err != nil {
		return nil, errors.Join(err, s.Stop(false))
	}
	return s, nil
}

func (s *Server) startKubeAPIServer(ctx context.Context, o Options) error {
	path, err := Tool("kube-apiserver")
	if err != nil {
		return err
	}
	etcd, err := s.startEtcd()
	if err != nil {
		return err
	}
	key, err := s.writeKey("service-account.key")
	if err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	flags := s.commonFlags(o)
	flags["etcd-servers"] = etcd
	flags["secure-port"] = port
	flags["cert-dir"] = filepath.Join(s.Dir, "certs")
	flags["service-account-key-file"] = key
	flags["service-account-signing-key-file"] = key
	var args []string
	for name, value := range flags {
		args = append(args, "--"+name+"="+value)
	}
	if s.process, err = StartProcess(s.Dir, s.Name, path, args...); err != nil {
		return err
	}
	s.URL = "https://127.0.0.1:" + port
	return s.awaitReady(ctx, func() error { return nil })
}

// startEtcd runs etcd in this process, on a Unix socket, and returns its URL. It
// writes without fsync: nothing here has to survive a power failure.
func (s *Server) startEtcd() (string, error) {
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
	<-etcd.Server.ReadyNotify()
	return "unix://" + client.Path, nil
}

// writeKey makes a private key for signing service account tokens.
func (s *Server) writeKey(name string) (string, error) {
	pem, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return "", err
	}
	path := filepath.Join(s.Dir, name)
	return path, keyutil.WriteKey(path, pem)
}
