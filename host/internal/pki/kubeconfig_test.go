package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func TestEnsureKubeconfig(t *testing.T) {
	t.Parallel()
	const server = "https://127.0.0.1:6443"
	opts := Options{Dir: t.TempDir()}
	p := ensure(t, opts)
	path := filepath.Join(t.TempDir(), "admin.kubeconfig")
	if err := p.EnsureKubeconfig(path, Admin(), server, nil); err != nil {
		t.Fatal(err)
	}
	assertPrivate(t, path)
	first := load(t, path)
	assertIdentity(t, p, first, Admin())
	if first.Host != server {
		t.Errorf("server is %q", first.Host)
	}

	t.Run("a second start keeps the file", func(t *testing.T) {
		before, _ := os.ReadFile(path)
		if err := ensure(t, opts).EnsureKubeconfig(path, Admin(), server, nil); err != nil {
			t.Fatal(err)
		}
		if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
			t.Error("the file has changed")
		}
	})
	t.Run("another port keeps the certificate", func(t *testing.T) {
		if err := p.EnsureKubeconfig(path, Admin(), "https://127.0.0.1:7443", nil); err != nil {
			t.Fatal(err)
		}
		changed := load(t, path)
		if changed.Host != "https://127.0.0.1:7443" || !bytes.Equal(changed.CertData, first.CertData) {
			t.Errorf("server is %q, certificate kept: %t", changed.Host, bytes.Equal(changed.CertData, first.CertData))
		}
	})
	t.Run("an old certificate is replaced", func(t *testing.T) {
		later := ensure(t, Options{Dir: opts.Dir, Now: in(validity)})
		if err := later.EnsureKubeconfig(path, Admin(), server, nil); err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(load(t, path).CertData, first.CertData) {
			t.Error("the certificate was kept")
		}
	})
	t.Run("garbage is replaced", func(t *testing.T) {
		write(t, path, "}")
		if err := p.EnsureKubeconfig(path, Admin(), server, nil); err != nil {
			t.Fatal(err)
		}
		assertIdentity(t, p, load(t, path), Admin())
	})
}

func TestKubeconfigForAnotherIdentity(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "starts for the first time") {
		t.Errorf("error without an authority is %v", err)
	}
	ensure(t, Options{Dir: dir})
	p, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	id := Identity{User: "jane", Groups: []string{"ops", "developers"}}
	data, err := p.Kubeconfig(id, "https://example.com", []byte("trust"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	assertIdentity(t, p, config, id)
	if string(config.CAData) != "trust" {
		t.Errorf("trust is %q", config.CAData)
	}
	if _, err := p.Kubeconfig(Identity{Groups: []string{"ops"}}, "https://example.com", nil); err == nil {
		t.Error("a certificate without a name was issued")
	}
}

func load(t *testing.T, path string) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func assertIdentity(t *testing.T, p *PKI, config *rest.Config, id Identity) {
	t.Helper()
	block, _ := pem.Decode(config.CertData)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(p.client.cert)
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if cert.Subject.CommonName != id.User || !slices.Equal(sorted(cert.Subject.Organization), sorted(id.Groups)) {
		t.Errorf("certificate is for %q, want %+v", cert.Subject, id)
	}
	if left := time.Until(cert.NotAfter); left < validity-time.Hour {
		t.Errorf("certificate is valid for %v", left)
	}
}
