package front

import (
	"fmt"
	"os"
	"time"

	"k8s.io/apiserver/pkg/audit/policy"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/catena-dev/catena/host/internal/grants"
	"github.com/catena-dev/catena/host/internal/pki"
)

// checkFiles checks the files that the operator has named, so that all problems are
// reported at once, each with the flag that names the file. It also returns the paths of
// the files that have a problem.
func (f *Flags) checkFiles(now time.Time) (problems []error, unusable []string) {
	if f.kubernetes {
		return nil, nil
	}
	check := func(flag, path string, err error) {
		if err != nil {
			problems, unusable = append(problems, fmt.Errorf("%s: %w", key(flag), err)), append(unusable, path)
		}
	}
	for _, name := range grants.ClassifiedFlags() {
		if !f.operator[name] || !grants.FlagIs(name, grants.FlagFile) || grants.FlagIs(name, grants.FlagPair) {
			continue
		}
		for _, path := range f.values[name] {
			check(name, path, checkReadable(path))
		}
	}
	if file := f.options.Audit.PolicyFile; file != "" && checkReadable(file) == nil {
		_, err := policy.LoadPolicyFromFile(file)
		check("audit-policy-file", file, err)
	}
	for _, file := range []struct {
		flag string
		load func(path string) error
	}{
		{"client-ca-file", holdsCertificates}, {"kubelet-certificate-authority", holdsCertificates},
		{"requestheader-client-ca-file", holdsCertificates}, {"service-account-signing-key-file", holdsKey},
	} {
		for _, path := range f.values[file.flag] {
			if f.operator[file.flag] && path != "" && checkReadable(path) == nil {
				check(file.flag, path, file.load(path))
			}
		}
	}
	return append(problems, f.checkPairs(now)...), unusable
}

func holdsCertificates(path string) error {
	_, err := certutil.CertsFromFile(path)
	return err
}

func holdsKey(path string) error {
	_, err := keyutil.PrivateKeyFromFile(path)
	return err
}

func checkReadable(path string) error {
	if path == "" {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s is a directory, not a file", path)
	}
	return err
}

// checkPairs checks certificates and their keys. kube-apiserver would use an
// expired certificate without a word.
func (f *Flags) checkPairs(now time.Time) []error {
	var problems []error
	for _, pair := range [][2]string{
		{"tls-cert-file", "tls-private-key-file"},
		{"proxy-client-cert-file", "proxy-client-key-file"},
		{"kubelet-client-certificate", "kubelet-client-key"},
	} {
		if !f.operator[pair[0]] && !f.operator[pair[1]] {
			continue
		}
		cert, certKey := f.Value(pair[0]), f.Value(pair[1])
		switch {
		case cert == "" && certKey == "":
		case cert == "" || certKey == "":
			problems = append(problems, fmt.Errorf("%s and %s: one cannot be used without the other", key(pair[0]), key(pair[1])))
		default:
			if err := pki.CheckPair(cert, certKey, now); err != nil {
				problems = append(problems, fmt.Errorf("%s, %s: %w", key(pair[0]), key(pair[1]), err))
			}
		}
	}
	for _, pair := range f.options.SecureServing.SNICertKeys {
		if err := pki.CheckPair(pair.CertFile, pair.KeyFile, now); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", key("tls-sni-cert-key"), err))
		}
	}
	return problems
}
