package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/catena-dev/catena/test/internal/cluster"
)

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

// withToken returns a kubectl with another identity, in the same namespace.
func (s *system) withToken(k *kubectl, token string) *kubectl {
	k.t.Helper()
	return s.withAuth(k, &api.AuthInfo{Token: token})
}

func (s *system) withAuth(k *kubectl, auth *api.AuthInfo) *kubectl {
	k.t.Helper()
	config, err := clientcmd.LoadFromFile(s.users[cluster.Admin])
	if err != nil {
		k.t.Fatal(err)
	}
	config.AuthInfos = map[string]*api.AuthInfo{config.Contexts[config.CurrentContext].AuthInfo: auth}
	path := filepath.Join(k.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		k.t.Fatal(err)
	}
	return k.with(path)
}

func serviceAccountGroups(namespace string) []string {
	return []string{"system:authenticated", "system:serviceaccounts", "system:serviceaccounts:" + namespace}
}

// A service account gets its token by the TokenRequest API, and with it is who it is.
func TestServiceAccountToken(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.kubectl(t)
	k.run("create", "serviceaccount", "robot")
	user := "system:serviceaccount:" + k.namespace + ":robot"
	robot := s.withToken(k, k.run("create", "token", "robot"))
	robot.isWho(user, serviceAccountGroups(k.namespace))
	robot.fail("", []string{"get", "configmaps"}, "Error from server (Forbidden)", `User "`+user+`" cannot list resource "configmaps"`)
	k.run("create", "rolebinding", "robot", "--clusterrole=view", "--serviceaccount="+k.namespace+":robot")
	eventuallyPrints(robot, func(out string) bool { return out == "yes\n" }, "auth", "can-i", "list", "configmaps")

	// Its TokenReview says the same, and a token for another audience is not for the API.
	review := fmt.Sprintf(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":%q}}`, k.run("create", "token", "robot"))
	if got := k.pipe(review, "create", patientRequests, "-f", "-", "-o", "jsonpath={.status.authenticated} {.status.user.username}"); got != "true "+user {
		t.Errorf("TokenReview says %q", got)
	}
	foreign := s.withToken(k, k.run("create", "token", "robot", "--audience=elsewhere"))
	foreign.fail("", []string{"get", "configmaps"}, "You must be logged in to the server")
}

// A token that is bound to a pod ends with the pod, one of a service account with that.
func TestServiceAccountTokenEnds(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.kubectl(t)
	k.run("create", "serviceaccount", "robot")
	user := "system:serviceaccount:" + k.namespace + ":robot"
	k.run("run", "holder", "--image=i", `--overrides={"spec":{"serviceAccountName":"robot"}}`)
	k.run("wait", "--for=condition=Ready", "pod/holder", patiently)
	bound := s.withToken(k, k.run("create", "token", "robot", "--bound-object-kind=Pod", "--bound-object-name=holder"))
	bound.isWho(user, serviceAccountGroups(k.namespace))
	free := s.withToken(k, k.run("create", "token", "robot"))
	free.isWho(user, serviceAccountGroups(k.namespace))

	refused := func(out string) bool { return strings.Contains(out, "Unauthorized") }
	k.run("delete", "pod", "holder")
	eventuallyPrints(bound, refused, "auth", "whoami")
	free.isWho(user, serviceAccountGroups(k.namespace))
	k.run("delete", "serviceaccount", "robot")
	eventuallyPrints(free, refused, "auth", "whoami")
}

// The token controller fills secrets, and the root CA publisher every namespace.
func TestServiceAccountControllers(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.kubectl(t)
	k.pipe(`{"apiVersion":"v1","kind":"Secret","type":"kubernetes.io/service-account-token",
		"metadata":{"name":"s","annotations":{"kubernetes.io/service-account.name":"default"}}}`, "create", "-f", "-")
	var token string
	eventually(t, "the secret gets a token", func(context.Context) error {
		token = k.run("get", "secret", "s", "-o", "go-template={{with .data.token}}{{. | base64decode}}{{end}}")
		if token == "" {
			return fmt.Errorf("it has none")
		}
		return nil
	})
	s.withToken(k, token).isWho("system:serviceaccount:"+k.namespace+":default", serviceAccountGroups(k.namespace))

	ca, err := os.ReadFile(s.pki("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	k.run("wait", "--for=create", "configmap/kube-root-ca.crt", patiently)
	k.equal(strings.TrimSuffix(string(ca), "\n"), "get", "configmap", "kube-root-ca.crt", "-o", `jsonpath={.data.ca\.crt}`)
}

// A certificate that the controller manager signs is accepted.
func TestCertificateSigningRequest(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.kubectl(t)
	key, request := newCertificateRequest(t, "carol", "devs")
	name := k.namespace + "-carol"
	k.pipe(fmt.Sprintf(`{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{"name":%q},
		"spec":{"signerName":"kubernetes.io/kube-apiserver-client","request":%q,"usages":["client auth"]}}`, name, request), "create", "-f", "-")
	t.Cleanup(func() { k.afterTest("delete", "csr", name) })
	k.run("certificate", "approve", name)
	k.run("wait", "--for=jsonpath={.status.certificate}", "csr/"+name, patiently)
	certificate := k.run("get", "csr", name, "-o", "go-template={{.status.certificate | base64decode}}")
	carol := s.withAuth(k, &api.AuthInfo{ClientCertificateData: []byte(certificate), ClientKeyData: key})
	carol.isWho("carol", []string{"devs", "system:authenticated"})
}
