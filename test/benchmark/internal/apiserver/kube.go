package apiserver

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strconv"
)

// Kube returns a kube-apiserver with an etcd process, of the binaries in bin/tools, with its data in
// the new directory dir.
func Kube(bin, dir string) (*Server, error) {
	ports, err := prepare(dir, 3)
	if err != nil {
		return nil, err
	}
	key := filepath.Join(dir, "sa.key")
	if err := writeKey(key); err != nil {
		return nil, err
	}
	store, peer := "http://127.0.0.1:"+strconv.Itoa(ports[1]), "http://127.0.0.1:"+strconv.Itoa(ports[2])
	etcd := command{"etcd.log", filepath.Join(bin, "tools", "etcd"), []string{
		"--data-dir", filepath.Join(dir, "etcd"),
		"--listen-client-urls", store, "--advertise-client-urls", store, "--listen-peer-urls", peer,
		// As in Catena's embedded etcd, whose start would otherwise have an advantage.
		"--heartbeat-interval", "25", "--election-timeout", "150",
	}}
	apiserver := command{"kube-apiserver.log", filepath.Join(bin, "tools", "kube-apiserver"), []string{
		"--etcd-servers", store, "--secure-port", strconv.Itoa(ports[0]), "--cert-dir", filepath.Join(dir, "certs"),
		"--token-auth-file", tokens(dir), "--authorization-mode", "Node,RBAC",
		"--service-account-issuer", "https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file", key, "--service-account-signing-key-file", key,
		"--service-cluster-ip-range", "10.0.0.0/24",
	}}
	return &Server{
		Name: "kube-apiserver", Config: clientConfig(ports[0]), dir: dir,
		Binaries: []string{etcd.path, apiserver.path},
		commands: []command{etcd, apiserver},
	}, nil
}

func writeKey(path string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	return os.WriteFile(path, pem.EncodeToMemory(block), 0o600)
}
