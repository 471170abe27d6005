package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Identity is who a client certificate is for.
type Identity struct {
	User   string
	Groups []string
}

// Admin is the identity of admin.kubeconfig. Its group may do everything, as in
// kubeadm's super-admin.conf, and not, as in its admin.conf, through a role
// binding: a chain need not have a stage that stores role bindings.
func Admin() Identity {
	return Identity{User: "kubernetes-admin", Groups: []string{systemMasters}}
}

// cluster is the name of the cluster in a kubeconfig.
const cluster = "catena"

// Kubeconfig returns a kubeconfig, with a client certificate for the identity in
// it that is valid for a year, for the server at the URL. Trust holds the
// certificates, in PEM, that the server's own is verified with; nil stands for
// the authority of this directory.
func (p *PKI) Kubeconfig(id Identity, server string, trust []byte) ([]byte, error) {
	cert, key, err := p.issue(id)
	if err != nil {
		return nil, err
	}
	return p.kubeconfig(id, server, trust, cert, key)
}

func (p *PKI) issue(id Identity) (cert, key []byte, err error) {
	if id.User == "" {
		return nil, nil, errors.New("client certificate: no user name")
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	signed, err := p.client.sign(clientTemplate(id.User, id.Groups...), private.Public())
	if err != nil {
		return nil, nil, fmt.Errorf("client certificate for %q: %w", id.User, err)
	}
	if key, err = keyutil.MarshalPrivateKeyToPEM(private); err != nil {
		return nil, nil, err
	}
	cert, err = certutil.EncodeCertificates(signed)
	return cert, key, err
}

func (p *PKI) kubeconfig(id Identity, server string, trust, cert, key []byte) ([]byte, error) {
	if trust == nil {
		var err error
		if trust, err = certutil.EncodeCertificates(p.client.cert); err != nil {
			return nil, err
		}
	}
	context := id.User + "@" + cluster
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{cluster: {Server: server, CertificateAuthorityData: trust}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{id.User: {ClientCertificateData: cert, ClientKeyData: key}},
		Contexts:       map[string]*clientcmdapi.Context{context: {Cluster: cluster, AuthInfo: id.User}},
		CurrentContext: context,
	})
}

// EnsureKubeconfig writes a kubeconfig for the identity to a file that only its
// owner can read. The client certificate of an earlier call is kept while it is
// valid, and the file is not written if nothing in it would change.
func (p *PKI) EnsureKubeconfig(path string, id Identity, server string, trust []byte) error {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	cert, key, ok := p.reusable(old, id)
	if !ok {
		if cert, key, err = p.issue(id); err != nil {
			return err
		}
	}
	data, err := p.kubeconfig(id, server, trust, cert, key)
	if err != nil {
		return fmt.Errorf("kubeconfig for %q: %w", id.User, err)
	}
	if bytes.Equal(data, old) {
		return os.Chmod(path, 0o600)
	}
	return writeFile(path, data)
}

// reusable returns the client certificate in a kubeconfig if it can stay.
func (p *PKI) reusable(kubeconfig []byte, id Identity) (cert, key []byte, ok bool) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil || config.AuthInfos[id.User] == nil {
		return nil, nil, false
	}
	auth := config.AuthInfos[id.User]
	pair, err := tls.X509KeyPair(auth.ClientCertificateData, auth.ClientKeyData)
	if err != nil {
		return nil, nil, false
	}
	parsed, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil || parsed.CheckSignatureFrom(p.client.cert) != nil {
		return nil, nil, false
	}
	if p.client.isStale(parsed, clientTemplate(id.User, id.Groups...)) {
		return nil, nil, false
	}
	return auth.ClientCertificateData, auth.ClientKeyData, true
}
