package front

import (
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/apiserver/pkg/audit/policy"

	"github.com/catena-dev/catena/host/internal/pki"
)

// checkFiles checks the files that the operator has named, so that all problems
// are told at once, with the flag that names the file.
func (f *Flags) checkFiles(now time.Time) error {
	var problems []error
	for _, name := range []string{
		"admission-control-config-file", "audit-policy-file", "audit-webhook-config-file",
		"authentication-config", "authentication-token-webhook-config-file",
		"authorization-config", "authorization-policy-file", "authorization-webhook-config-file",
		"client-ca-file", "egress-selector-config-file", "encryption-provider-config",
		"etcd-cafile", "etcd-certfile", "etcd-keyfile",
		"kubelet-certificate-authority", "oidc-ca-file", "peer-ca-file", "requestheader-client-ca-file",
		"service-account-key-file", "service-account-signing-key-file", "token-auth-file", "tracing-config-file",
	} {
		if !f.operator[name] {
			continue
		}
		for _, path := range f.values[name] {
			problems = append(problems, checkReadable(name, path))
		}
	}
	problems = append(problems, f.checkPairs(now))
	if file := f.options.Audit.PolicyFile; file != "" && !isMissing(file) {
		if _, err := policy.LoadPolicyFromFile(file); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", key("audit-policy-file"), err))
		}
	}
	return errors.Join(problems...)
}

func checkReadable(flag, path string) error {
	if path == "" {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %w", key(flag), err)
	}
	return file.Close()
}

// checkPairs checks certificates and their keys. kube-apiserver would use an
// expired certificate without a word.
func (f *Flags) checkPairs(now time.Time) error {
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
			problems = append(problems, fmt.Errorf("%s and %s: one is of no use without the other", key(pair[0]), key(pair[1])))
		default:
			if err := pki.CheckPair(cert, certKey, now); err != nil {
				problems = append(problems, fmt.Errorf("%s, %s: %w", key(pair[0]), key(pair[1]), err))
			}
		}
	}
	return errors.Join(problems...)
}
