package join

import (
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Keys identify what the hosts of a cluster have in common. Certificates and public keys are named by the
// beginning of their SHA-256.
type Keys struct {
	// Signing is the key that signs the tokens of service accounts, "" if none does or a process of its own.
	Signing string `json:"signing,omitempty"`
	// Verifying are the keys that verify them.
	Verifying []string `json:"verifying,omitempty"`
	// Issuers are those of the tokens, that of new ones first.
	Issuers []string `json:"issuers,omitempty"`
	// ClientCAs are the authorities of client certificates, each by its certificate, and by its name and key: signed anew, it is the same.
	ClientCAs []string `json:"clientCAs,omitempty"`
}

// Files are where a server has its keys, as the flags of kube-apiserver name them. Those that are not set are empty.
type Files struct {
	// SigningKey is service-account-signing-key-file.
	SigningKey string
	// VerifyingKeys are service-account-key-file.
	VerifyingKeys []string
	// Issuers are the values of service-account-issuer.
	Issuers []string
	// ClientCA is client-ca-file.
	ClientCA string
}

// ReadKeys reads the files. An error names the file.
func ReadKeys(f Files) (Keys, error) {
	k := Keys{Issuers: f.Issuers}
	if f.SigningKey != "" {
		key, err := keyutil.PrivateKeyFromFile(f.SigningKey)
		if err != nil {
			return k, fmt.Errorf("%s: %w", f.SigningKey, err)
		}
		signer, ok := key.(crypto.Signer)
		if !ok {
			return k, fmt.Errorf("%s: a key of type %T cannot sign", f.SigningKey, key)
		}
		if k.Signing, err = publicKeyID(signer.Public()); err != nil {
			return k, fmt.Errorf("%s: %w", f.SigningKey, err)
		}
	}
	for _, file := range f.VerifyingKeys {
		keys, err := keyutil.PublicKeysFromFile(file)
		if err != nil {
			return k, fmt.Errorf("%s: %w", file, err)
		}
		for _, key := range keys {
			id, err := publicKeyID(key)
			if err != nil {
				return k, fmt.Errorf("%s: %w", file, err)
			}
			k.Verifying = append(k.Verifying, id)
		}
	}
	if f.ClientCA != "" {
		text, err := os.ReadFile(f.ClientCA)
		if err != nil {
			return k, err
		}
		certs, err := certutil.ParseCertsPEM(text)
		if err != nil {
			return k, fmt.Errorf("%s: %w", f.ClientCA, err)
		}
		for _, cert := range certs {
			k.ClientCAs = append(k.ClientCAs, id(cert.Raw), id(append(slices.Clone(cert.RawSubject), cert.RawSubjectPublicKeyInfo...)))
		}
	}
	return k.normal(), nil
}

func publicKeyID(key crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	return id(der), err
}

func id(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:8])
}

// normal sorts what has no order.
func (k Keys) normal() Keys {
	for _, list := range []*[]string{&k.Verifying, &k.ClientCAs} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return k
}

func (k Keys) equal(other Keys) bool {
	return k.Signing == other.Signing && slices.Equal(k.Verifying, other.Verifying) &&
		slices.Equal(k.Issuers, other.Issuers) && slices.Equal(k.ClientCAs, other.ClientCAs)
}

// fit returns why a host with these keys cannot serve beside those with the keys of the cluster: a client that one of
// them knows would be unknown to the other.
func (k Keys) fit(cluster Keys) error {
	var problems []error
	problem := func(flag, format string, args ...any) {
		problems = append(problems, fmt.Errorf("apiserver."+flag+": "+format, args...))
	}
	if cluster.Signing != "" && len(k.Verifying) > 0 && !slices.Contains(k.Verifying, cluster.Signing) {
		problem("service-account-key-file", "this host would refuse the service account tokens of the cluster: it does not have their key, %s", cluster.Signing)
	}
	if k.Signing != "" && len(cluster.Verifying) > 0 && !slices.Contains(cluster.Verifying, k.Signing) {
		problem("service-account-signing-key-file", "the cluster would refuse the service account tokens of this host: it does not have their key, %s", k.Signing)
	}
	if len(cluster.Issuers) > 0 && len(k.Issuers) > 0 {
		if !slices.Contains(k.Issuers, cluster.Issuers[0]) {
			problem("service-account-issuer", "this host would refuse the tokens of the cluster's issuer, %s", cluster.Issuers[0])
		} else if !slices.Contains(cluster.Issuers, k.Issuers[0]) {
			problem("service-account-issuer", "the cluster would refuse the tokens of this host's issuer, %s", k.Issuers[0])
		}
	}
	if len(cluster.ClientCAs) > 0 && len(k.ClientCAs) > 0 && !common(k.ClientCAs, cluster.ClientCAs) {
		problem("client-ca-file", "this host and the cluster trust different authorities of client certificates: %s and %s", k.ClientCAs[0], cluster.ClientCAs[0])
	}
	return errors.Join(problems...)
}

func common(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}
