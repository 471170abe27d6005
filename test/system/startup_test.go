package system

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// A configuration that is wrong is refused before anything is started.
func TestWrongConfiguration(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: catena.dev/v1alpha1\nkind: HostConfiguration\n"
	for name, tc := range map[string]struct {
		text string
		want []string // FILE stands for the path of the file
	}{
		"unknown key":         {head + "stages: {hello: {bianry: x}}", []string{`FILE:3: stages.hello.bianry: unknown key (did you mean "binary"?)`}},
		"unknown key on top":  {head + "stages: {hello: {}}\nstore:\n  endpoint: x", []string{`FILE:5: store.endpoint: unknown key (did you mean "endpoints"?)`}},
		"wrong type":          {head + "stages: {hello: {startTimeout: soon}}", []string{"FILE:3: stages.hello.startTimeout: ", `"soon"`}},
		"not YAML":            {head + "stages: [", []string{"FILE"}},
		"no kind":             {"stages: {hello: {}}", []string{"FILE", "apiVersion", "kind"}},
		"no stages":           {head, []string{"stages"}},
		"unknown delegate":    {head + "stages:\n  hello: {delegate: cor}\n  core: {}", []string{`FILE:4: stages.hello.delegate: delegates to "cor", which is not declared (did you mean "core"?)`}},
		"delegates to itself": {head + "stages: {hello: {delegate: hello}}", []string{"FILE:3: stages.hello.delegate", "itself"}},
		"cycle":               {head + "stages: {a: {delegate: b}, b: {delegate: c}, c: {delegate: a}}", []string{"a → b → c → a"}},
		"two heads":           {head + "stages: {a: {delegate: c}, b: {}, c: {}}", []string{"a", "b", "head"}},
		"fork":                {head + "stages: {a: {delegate: c}, b: {delegate: c}, c: {}}", []string{`"a"`, `"b"`, `"c"`}},
		"unreachable":         {head + "stages: {a: {delegate: b}, b: {}, c: {delegate: d}, d: {delegate: c}}", []string{"c", "d"}},
		"unknown flag":        {head + "stages: {hello: {}}\napiserver: {secure_port: 1}", []string{`FILE:4: apiserver.secure_port: `, `(did you mean "secure-port"?)`}},
		"several at once":     {head + "stages: {hello: {bianry: x, delegate: nobody}}\nlogs: {}", []string{"bianry", "nobody", "FILE:4: logs", "errors"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.config = write(t, "catena.yaml", tc.text)
			for i, w := range tc.want {
				tc.want[i] = strings.ReplaceAll(w, "FILE", s.config)
			}
			s.refused(t, runCatena(t, s.args()...), tc.want...)
			if _, err := os.Stat(s.data); err == nil {
				t.Error("the data directory has been made")
			}
		})
	}
}

func TestUnreadableConfiguration(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{
		"missing":   filepath.Join(t.TempDir(), "no-such.yaml"),
		"directory": t.TempDir(),
		"binary":    write(t, "catena.yaml", "\x7fELF\x00\x01\xff\xfe"),
		"format":    write(t, "catena.ini", "[stages]"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.config = path
			s.refused(t, runCatena(t, s.args()...), path)
		})
	}
}

// Flags of kube-apiserver are checked by its own code, and the errors name the place
// where the flag was set.
func TestWrongFlags(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for name, tc := range map[string]struct {
		set  string
		want []string
	}{
		"unknown":         {"apiserver.authorisation-mode=RBAC", []string{"--set apiserver.authorisation-mode", `did you mean "authorization-mode"?`}},
		"invalid":         {"apiserver.secure-port=ninety", []string{"apiserver.secure-port", "ninety"}},
		"range":           {"apiserver.secure-port=99999", []string{"--set apiserver.secure-port: 99999"}},
		"mode":            {"apiserver.authorization-mode=Sometimes", []string{"apiserver", "authorization-mode", "Sometimes"}},
		"file":            {"apiserver.audit-policy-file=/no/such/policy", []string{"/no/such/policy", "audit-policy-file"}},
		"gate":            {"apiserver.feature-gates=NoSuchGate=true", []string{"NoSuchGate", "feature-gates"}},
		"admission":       {"apiserver.enable-admission-plugins=NoSuchPlugin", []string{"NoSuchPlugin", "enable-admission-plugins"}},
		"the host's":      {"apiserver.etcd-servers=http://127.0.0.1:1", []string{"apiserver.etcd-servers", "store.endpoints"}},
		"token file":      {"apiserver.token-auth-file=/no/such/tokens", []string{"/no/such/tokens", "token-auth-file"}},
		"client CA":       {"apiserver.client-ca-file=/no/such/ca", []string{"/no/such/ca", "client-ca-file"}},
		"bad address":     {"apiserver.bind-address=nowhere", []string{"apiserver.bind-address", "nowhere"}},
		"foreign address": {"apiserver.bind-address=192.0.2.1", []string{"192.0.2.1", "apiserver.bind-address"}},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"serve", "--config", s.config, "--data-dir", s.data, "--set", "pluginDirs=" + s.plugins,
				"--set", "apiserver.secure-port=0", "--set", "apiserver.bind-address=127.0.0.1", "--set", tc.set}
			s.refused(t, runCatena(t, args...), tc.want...)
		})
	}
	s.works(t, s.args()...)
}

func freePort(t *testing.T) string {
	t.Helper()
	port, err := cluster.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := newSite(t)
	s.refused(t, runCatena(t, s.args("--secure-port", port)...), "127.0.0.1:"+port, "in use", "secure-port")
	l.Close()
	s.works(t, s.args("--secure-port", port)...)
}
