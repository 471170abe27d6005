package front

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/catena-dev/catena/host/internal/pki"
)

// Kubernetes' code names flags in many ways, and sometimes not at all.
func TestErrorsNameTheKey(t *testing.T) {
	t.Parallel()
	f, err := parseFlags(map[string][]string{
		"tls-sni-cert-key": {"/etc/a.crt,/etc/a.key"},
		"runtime-config":   {"nosuch/v1=true", "batch/v1=true"},
		"token-auth-file":  {"/etc/a.crt.old"},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"--secure-port 99999 must be between":                 "apiserver.secure-port 99999 must be between",
		"cannot set `--v` without --nosuch-flag":              "cannot set `apiserver.v` without --nosuch-flag",
		`authorization-mode "Sometimes" is not a valid mode`:  `apiserver.authorization-mode "Sometimes" is not a valid mode`,
		"service-cluster-ip-range[0] is not a valid cidr":     "apiserver.service-cluster-ip-range[0] is not a valid cidr",
		"--requestheader-client-ca-file and --client-ca-file": "apiserver.requestheader-client-ca-file and apiserver.client-ca-file",
		"the flag, secure-port, is wrong.\n  really":          "the flag, apiserver.secure-port, is wrong. really",
		"open /a/client-ca-file: no such file":                "apiserver: open /a/client-ca-file: no such file",
		"an x-client-ca-file-y is none, nor is v":             "apiserver: an x-client-ca-file-y is none, nor is v",
		"invalid audit log mode sloppy":                       "apiserver.audit-log-mode: invalid audit log mode sloppy",
		"unable to load client CA file: bad":                  "apiserver.client-ca-file: unable to load client CA file: bad",
		"unknown api groups nosuch/v1":                        "apiserver.runtime-config: unknown api groups nosuch/v1",
		"failed to load SNI cert and key: open /etc/a.crt: x": "apiserver.tls-sni-cert-key: failed to load SNI cert and key: open /etc/a.crt: x",
		"something else": "apiserver: something else",
	} {
		if got := f.configErrors(errors.New(text)); len(got) != 1 || got[0].Error() != want {
			t.Errorf("%s\nhas become %q\nwant        %q", text, got, want)
		}
	}
}

// kube-apiserver's main adds some gates to those of its libraries.
func TestLoggingGatesAreKnown(t *testing.T) {
	t.Parallel()
	_, err := ParseFlags(t.Context(), map[string][]string{
		"feature-gates": {"ContextualLogging=true,LoggingBetaOptions=true"}, "etcd-servers": {"unix:///nowhere/etcd.sock"},
	}, Defaults(pki.FilesIn(t.TempDir()))...)
	if err != nil {
		t.Error(err)
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	a, b, c := errors.New("a"), errors.New("b"), errors.New("c")
	sentence := fmt.Errorf("%w, besides %w", a, b)
	got := split(errors.Join(utilerrors.NewAggregate([]error{a, errors.Join(b, c)}), sentence))
	if want := []error{a, b, c, sentence}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := split(nil); got != nil {
		t.Errorf("nothing has become %q", got)
	}
}

// What keeps Kubernetes' code from looking further must not hide the rest, and what
// it says of a file that cannot be read is not reported a second time.
func TestValidateReportsEverything(t *testing.T) {
	t.Parallel()
	_, err := ParseFlags(t.Context(), map[string][]string{
		"secure-prt":                           {"1"},
		"secure-port":                          {"99999"},
		"min-request-timeout":                  {"-5"},
		"service-cluster-ip-range":             {"10.0.0.0"},
		"service-account-max-token-expiration": {"5m"},
		"token-auth-file":                      {"/no/such/tokens"},
		"authorization-config":                 {"/no/such/authz"},
		"service-account-signing-key-file":     {"/no/such/key"},
		"service-account-key-file":             {"/dev/null"},
		"client-ca-file":                       {"/dev/null"},
		"audit-policy-file":                    {t.TempDir()},
		"tls-sni-cert-key":                     {"/no/such/crt,/no/such/key"},
		"feature-gates":                        {"Nonsense=true", "Rubbish=false,UnknownVersionInteroperabilityProx=true"},
	}, append(Defaults(pki.FilesIn(t.TempDir())), Default{Flags: []string{"etcd-servers=unix:///nowhere/etcd.sock"}})...)
	got := split(err)
	for _, want := range []string{
		"apiserver.secure-prt: kube-apiserver has no such flag", "apiserver.secure-port 99999", "apiserver.min-request-timeout can not",
		"apiserver.service-cluster-ip-range[0] is not", "apiserver.service-account-max-token-expiration must",
		"apiserver.token-auth-file: open /no/such/tokens", "apiserver.authorization-config: open /no/such/authz",
		"apiserver.service-account-signing-key-file: open /no/such/key", "apiserver.client-ca-file: ",
		"apiserver.audit-policy-file: ", "apiserver.tls-sni-cert-key: open /no/such/crt", `no feature gate "Nonsense"`,
		`no feature gate "Rubbish"`, `no feature gate "UnknownVersionInteroperabilityProx" (did you mean "UnknownVersionInteroperabilityProxy"?)`,
	} {
		n := 0
		for _, e := range got {
			if strings.Contains(e.Error(), want) && !strings.Contains(e.Error(), "\n") {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d lines have %q, want one", n, want)
		}
	}
	if _, err := ParseFlags(t.Context(), nil, Defaults(pki.FilesIn(t.TempDir()))...); err != nil {
		t.Errorf("the next flags get errors of these: %v", err)
	}
	if t.Failed() {
		t.Logf("all errors:\n%v", err)
	}
}
