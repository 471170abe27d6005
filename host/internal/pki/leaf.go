package pki

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	// validity is how long a certificate is valid, as kubeadm's.
	validity = 365 * 24 * time.Hour
	// renewBefore is how long before its end a certificate is renewed.
	renewBefore = 30 * 24 * time.Hour
)

// servingTemplate is the certificate of the server for the names that every
// Kubernetes API server has, those of this machine, and hosts.
func servingTemplate(hosts []string) *x509.Certificate {
	t := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range append(servingHosts(), hosts...) {
		if ip := net.ParseIP(host); ip != nil {
			if !ip.IsUnspecified() {
				t.IPAddresses = append(t.IPAddresses, normalIP(ip))
			}
		} else if name := strings.ToLower(strings.TrimSuffix(host, ".")); isDNSName(name) {
			t.DNSNames = append(t.DNSNames, name)
		}
	}
	slices.Sort(t.DNSNames)
	t.DNSNames = slices.Compact(t.DNSNames)
	slices.SortFunc(t.IPAddresses, func(a, b net.IP) int { return slices.Compare(a, b) })
	t.IPAddresses = slices.CompactFunc(t.IPAddresses, net.IP.Equal)
	return t
}

func servingHosts() []string {
	hosts := []string{
		"localhost", "127.0.0.1", "::1",
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}
	if name, err := os.Hostname(); err == nil {
		hosts = append(hosts, name)
	}
	return hosts
}

// isDNSName reports whether a certificate can hold a name.
func isDNSName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' })
}

func normalIP(ip net.IP) net.IP {
	if v4 := ip.To4(); v4 != nil {
		return v4
	}
	return ip
}

func clientTemplate(user string, groups ...string) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

// ensureLeaf makes or renews the certificate and checks that its key fits.
func (a *authority) ensureLeaf(certFile, keyFile string, want *x509.Certificate) error {
	if !exists(keyFile) && !exists(certFile) {
		if err := newKey(keyFile); err != nil {
			return err
		}
	}
	key, err := loadKey(keyFile)
	if err != nil {
		return fmt.Errorf("key of %s: %w: delete both files, and they are made anew", certFile, err)
	}
	cert, err := loadCert(certFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("%w: delete the file, and it is made anew", err)
	case cert.CheckSignatureFrom(a.cert) != nil:
		return fmt.Errorf("%s is not signed by %s: a certificate of your own belongs elsewhere, named by the flag of kube-apiserver that is for it; delete this one, and it is made anew", certFile, a.file)
	case !sameKey(cert, key):
		return fmt.Errorf("%s is not the key of %s: delete both files, and they are made anew", keyFile, certFile)
	case !a.isStale(cert, want):
		return nil
	}
	renewed, err := a.sign(want, key.Public())
	if err != nil {
		return fmt.Errorf("make %s: %w", certFile, err)
	}
	return writeCert(certFile, renewed)
}

// isStale reports whether a certificate must be renewed.
func (a *authority) isStale(cert, want *x509.Certificate) bool {
	now := a.now()
	if now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
		return true
	}
	if cert.NotAfter.Sub(now) < renewBefore && cert.NotAfter.Before(a.cert.NotAfter) {
		return true
	}
	return cert.Subject.CommonName != want.Subject.CommonName ||
		!slices.Equal(sorted(cert.Subject.Organization), sorted(want.Subject.Organization)) ||
		!slices.Equal(cert.DNSNames, want.DNSNames) ||
		!slices.EqualFunc(cert.IPAddresses, want.IPAddresses, net.IP.Equal)
}

// sorted returns a sorted copy: the order of organizations is lost in encoding.
func sorted(names []string) []string {
	return slices.Sorted(slices.Values(names))
}

// sign signs a certificate according to the template, for a year or until the authority
// expires.
func (a *authority) sign(template *x509.Certificate, public crypto.PublicKey) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	t := *template
	t.SerialNumber = serial.Add(serial, big.NewInt(1))
	t.NotBefore = a.cert.NotBefore.UTC()
	t.NotAfter = a.now().Add(validity).UTC()
	if t.NotAfter.After(a.cert.NotAfter) {
		t.NotAfter = a.cert.NotAfter.UTC()
	}
	t.BasicConstraintsValid = true
	der, err := x509.CreateCertificate(rand.Reader, &t, a.cert, public, a.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}
