// Package pki makes the certificates and keys that a server needs, and keeps them.
//
// The directory is laid out as kubeadm's: ca.crt and ca.key sign the serving
// certificate and every client certificate, front-proxy-ca.crt and its key sign
// the aggregator's certificate towards extension servers, and sa.key and sa.pub
// sign and verify service account tokens. Keys are made once. Certificates are
// valid for a year, and are renewed with the same key when they are about to expire or
// when their contents must change. The authorities, which clients trust, are never
// replaced, and neither are files that this package has not made.
package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"
)

// Options are what to make.
type Options struct {
	// Dir is the directory; it is made if it does not exist. Its mode becomes 0700.
	Dir string
	// Hosts are names and IP addresses under which the server is reached, besides
	// those that every server has (see servingHosts).
	Hosts []string
	// Now is the time; time.Now if nil.
	Now func() time.Time
}

// PKI is a directory of certificates and keys that fit together.
type PKI struct {
	files  Files
	client *authority
	now    func() time.Time
}

// Files returns where the certificates and keys are.
func (p *PKI) Files() Files { return p.files }

// Ensure makes the missing files of the directory, renews certificates that need it, and
// checks the rest. It can be called again while the server runs, to renew in time: the
// server reloads certificates whose files change. An error names the file and what to do.
func Ensure(opts Options) (*PKI, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if err := privateDir(opts.Dir); err != nil {
		return nil, err
	}
	files := FilesIn(opts.Dir)
	newKey := newServiceAccountKey(files.ServiceAccountKey)
	client, err := ensureAuthority(files.CA, files.CAKey, "kubernetes", opts.Now)
	if err != nil {
		return nil, err
	}
	frontProxy, err := ensureAuthority(files.FrontProxyCA, files.FrontProxyCAKey, "front-proxy-ca", opts.Now)
	if err != nil {
		return nil, err
	}
	return &PKI{files: files, client: client, now: opts.Now}, errors.Join(
		client.ensureLeaf(files.Serving, files.ServingKey, servingTemplate(opts.Hosts)),
		client.ensureLeaf(files.KubeletClient, files.KubeletClientKey,
			clientTemplate("kube-apiserver-kubelet-client", systemMasters)),
		frontProxy.ensureLeaf(files.FrontProxyClient, files.FrontProxyClientKey, clientTemplate("front-proxy-client")),
		ensureServiceAccountKeys(files.ServiceAccountKey, files.ServiceAccountPublicKey, newKey),
	)
}

// Load returns the directory as an earlier Ensure has left it, to issue
// certificates. It writes nothing.
func Load(dir string) (*PKI, error) {
	files := FilesIn(dir)
	client, err := loadAuthority(files.CA, files.CAKey, time.Now)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("no certificate authority in %s: it is made when the server starts for the first time", dir)
	}
	if err != nil {
		return nil, err
	}
	return &PKI{files: files, client: client, now: time.Now}, nil
}

// systemMasters is the group that may do everything, whatever the authorization
// policy is.
const systemMasters = "system:masters"

// CheckPair checks a certificate and its key, of whatever origin, as a server or
// client is going to use them: both can be read, they belong together, and the
// certificate is valid now.
func CheckPair(certFile, keyFile string, now time.Time) error {
	cert, key, err := loadPair(certFile, keyFile)
	if err != nil {
		return err
	}
	if !sameKey(cert, key) {
		return fmt.Errorf("%s is not the key of %s", keyFile, certFile)
	}
	return checkValidity(certFile, cert, now)
}

func checkValidity(file string, cert *x509.Certificate, now time.Time) error {
	switch {
	case now.After(cert.NotAfter):
		return fmt.Errorf("%s expired on %s", file, cert.NotAfter.Format(time.RFC3339))
	case now.Before(cert.NotBefore):
		return fmt.Errorf("%s is not valid before %s, and this machine's clock shows %s",
			file, cert.NotBefore.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	default:
		return nil
	}
}
