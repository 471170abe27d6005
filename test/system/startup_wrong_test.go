package system

import (
	"os"
	"strings"
	"testing"
)

// Flags of every class are refused at once by a start, each with its place.
func TestWrongEverywhere(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.config = write(t, "catena.yaml", `apiVersion: catena.dev/v1alpha1
kind: HostConfiguration
stages: {hello: {lock: off}, gone: {delegate: hello}}
apiserver:
  secure-prt: 1
  min-request-timeout: -5
  feature-gates: [Nonsense=true, Rubbish=true]
  token-auth-file: /no/such/tokens
`)
	cmd := catenaCommand(t, s.args("--secure-port=-1", "--set", "apiserver.authorization-mode=Sometimes")...)
	cmd.Env = append(cmd.Env, "CATENA_APISERVER_GOAWAY_CHANCE=2")
	r := runCommand(t, cmd)
	s.refused(t, r, "catena: the configuration has 9 errors:\n")
	lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
	for _, want := range []string{
		s.config + `:3: stage "gone": no binary catena-stage-gone in `,
		s.config + `:5: apiserver.secure-prt: kube-apiserver has no such flag (did you mean "secure-port"?)`,
		s.config + `:6: apiserver.min-request-timeout `,
		s.config + `:7: apiserver.feature-gates: kube-apiserver has no feature gate "Nonsense"`,
		s.config + `:7: apiserver.feature-gates: kube-apiserver has no feature gate "Rubbish"`,
		s.config + `:8: apiserver.token-auth-file: open /no/such/tokens: `,
		`--set apiserver.authorization-mode: "Sometimes" `,
		`--secure-port: apiserver.secure-port -1 `,
		`env CATENA_APISERVER_GOAWAY_CHANCE: apiserver.goaway-chance `,
	} {
		n := 0
		for _, line := range lines {
			if strings.HasPrefix(line, want) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d lines begin with %s", n, want)
		}
	}
	if t.Failed() {
		t.Logf("standard error:\n%s", r.stderr)
	}
	if _, err := os.Stat(s.data); err == nil {
		t.Error("the data directory has been made")
	}
}
