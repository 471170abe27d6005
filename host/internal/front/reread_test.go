package front_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const metadataOfAll = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"

// The audit policy, which Kubernetes' code reads once, follows its file; of other files
// it is told that they do not.
func TestFilesOfFlagsAreReadAgain(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "audit.log")
	policy := writeFile(t, "policy.yaml", strings.Replace(metadataOfAll, "Metadata", "None", 1))
	tokens := writeFile(t, "tokens.csv", "secret,jane,1\n")
	flags := open(t)
	flags["audit-policy-file"], flags["audit-log-path"], flags["token-auth-file"] = []string{policy}, []string{log}, []string{tokens}
	s := start(t, flags, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	admin := s.admin(t)
	logged := func(path string) bool {
		admin.get(t, path)
		b, _ := os.ReadFile(log)
		return strings.Contains(string(b), path)
	}
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := s.Reread(); err != nil || len(r.Changed)+len(r.Stale) > 0 {
		t.Errorf("nothing has changed: %+v, %v", r, err)
	}

	write(policy, "kind: Policy\nrules: 5\n")
	if _, err := s.Reread(); err == nil || !strings.HasPrefix(err.Error(), "apiserver.audit-policy-file: "+policy) {
		t.Errorf("a wrong policy: %v", err)
	}
	write(policy, metadataOfAll)
	write(tokens, "other,jane,1\n")
	r, err := s.Reread()
	if err != nil || !slices.Equal(r.Changed, []string{"apiserver.audit-policy-file"}) || !slices.Equal(r.Stale, []string{"apiserver.token-auth-file"}) {
		t.Fatalf("%+v, %v", r, err)
	}
	if logged("/before") {
		t.Error("the policy is in effect before Apply")
	}
	r.Apply()
	eventually(t, "event", func() bool { return logged("/after") })
	if r, err := s.Reread(); err != nil || len(r.Changed) > 0 {
		t.Errorf("applied: %+v, %v", r, err)
	}
}
