package front_test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/pki"
)

func defaults(dir string) []front.Default {
	return append(front.Defaults(pki.FilesIn(dir)), front.Default{Flags: []string{"etcd-servers=unix:///nowhere/etcd.sock"}})
}

func TestParseFlagsReportsAllProblems(t *testing.T) {
	t.Parallel()
	_, err := front.ParseFlags(t.Context(), map[string][]string{
		"secure_port":        {"6443"},
		"secure-port":        {"many"},
		"anonymous-auth":     {"true", "false"},
		"no-such-flag-of":    {"x"},
		"authorization-mode": {"Sometimes"},
	}, defaults(t.TempDir())...)
	for _, want := range []string{
		`apiserver.secure_port: kube-apiserver has no such flag (did you mean "secure-port"?)`,
		`apiserver.secure-port: invalid value "many"`,
		`apiserver.anonymous-auth: takes one value, not 2`,
		`apiserver.no-such-flag-of: kube-apiserver has no such flag`,
		`Sometimes`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want it to contain %s", err, want)
		}
	}
}

func TestFlagsList(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	flags, err := front.ParseFlags(t.Context(), map[string][]string{
		"service-cluster-ip-range": {"10.1.0.0/16", "fd00::/108"},
		"service-account-issuer":   {"https://b", "https://a"},
		"tls-cert-file":            {"/mine.crt"},
		"tls-private-key-file":     {"/mine.key"},
		"authorization-config":     {"/authz.yaml"},
		"runtime-config":           {"api/alpha=false", "batch/v1=true"},
		"bind-address":             {"127.0.0.1"},
		"external-hostname":        {"api.example.com"},
	}, defaults(dir)...)
	if err != nil {
		t.Fatal(err)
	}
	list := flags.List()
	if !slices.IsSortedFunc(list, func(a, b string) int {
		return strings.Compare(strings.SplitN(a, "=", 2)[0], strings.SplitN(b, "=", 2)[0])
	}) {
		t.Errorf("list is not sorted: %q", list)
	}
	for _, want := range []string{
		"service-cluster-ip-range=10.1.0.0/16,fd00::/108",
		"tls-cert-file=/mine.crt",
		"client-ca-file=" + filepath.Join(dir, "ca.crt"),
		"etcd-servers=unix:///nowhere/etcd.sock",
		"runtime-config=api/alpha=false",
		"runtime-config=batch/v1=true",
	} {
		if !slices.Contains(list, want) {
			t.Errorf("%q is not in the list %q", want, list)
		}
	}
	issuers := slices.IndexFunc(list, func(s string) bool { return strings.HasPrefix(s, "service-account-issuer=") })
	if list[issuers] != "service-account-issuer=https://b" || list[issuers+1] != "service-account-issuer=https://a" {
		t.Errorf("issuers are not in the order in which they were set: %q", list[issuers:issuers+2])
	}
	for _, name := range []string{"authorization-mode", "service-cluster-ip-range=10.0.0.0/24"} {
		if slices.ContainsFunc(list, func(s string) bool { return strings.HasPrefix(s, name) }) {
			t.Errorf("default %s is set although the operator has set what replaces it", name)
		}
	}
	hosts := flags.Hosts()
	for _, want := range []string{"127.0.0.1", "api.example.com", "10.1.0.1", "fd00::1"} {
		if !slices.Contains(hosts, want) {
			t.Errorf("%q is not among the hosts %q", want, hosts)
		}
	}
}

func TestDefaultsComeWhole(t *testing.T) {
	t.Parallel()
	flags, err := front.ParseFlags(t.Context(), nil, defaults(t.TempDir())...)
	if err != nil {
		t.Fatal(err)
	}
	if got := flags.Value("authorization-mode"); got != "[Node,RBAC]" {
		t.Errorf("authorization mode is %s", got)
	}
	if flags.IsSetByOperator("authorization-mode") || flags.Value("v") != "0" {
		t.Error("a default counts as the operator's, or v is unknown")
	}
}

func TestValidateHasNoSideEffects(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pki")
	flags, err := front.ParseFlags(t.Context(), map[string][]string{"secure-port": {"0"}}, defaults(dir)...)
	if err != nil {
		t.Fatal(err)
	}
	if err := flags.Validate(t.Context()); err != nil {
		t.Errorf("good flags are refused: %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory for certificates was created")
	}
}

func TestValidateRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := pki.Ensure(pki.Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	files := pki.FilesIn(dir)
	for name, c := range map[string]struct {
		flags map[string][]string
		want  string
	}{
		"a port out of range":            {flagValues{"secure-port": {"70000"}}, "apiserver.secure-port 70000 must be between"},
		"an empty list of servers":       {flagValues{"etcd-servers": {}}, "apiserver.etcd-servers must be specified"},
		"an unknown group":               {flagValues{"runtime-config": {"nosuch/v1=true"}}, "nosuch"},
		"a range that is none":           {flagValues{"service-cluster-ip-range": {"10.0.0.0"}}, "service-cluster-ip-range[0] is not a valid cidr"},
		"a key of another":               {flagValues{"tls-cert-file": {files.Serving}, "tls-private-key-file": {files.CAKey}}, "apiserver.tls-cert-file, apiserver.tls-private-key-file: " + files.CAKey + " is not the key of"},
		"a certificate alone":            {flagValues{"tls-cert-file": {files.Serving}}, "apiserver.tls-cert-file and apiserver.tls-private-key-file: one cannot be used without the other"},
		"a file that is not there":       {flagValues{"token-auth-file": {"/no/such"}}, "apiserver.token-auth-file: open /no/such: no such file"},
		"an audit policy that is none":   {flagValues{"audit-policy-file": {files.CA}}, "apiserver.audit-policy-file: "},
		"a version of TLS that is none":  {flagValues{"tls-min-version": {"9"}}, "apiserver.tls-min-version: unknown tls version \"9\": use one of VersionTLS10"},
		"a cipher suite that is none":    {flagValues{"tls-cipher-suites": {"ROT13"}}, "apiserver.tls-cipher-suites: "},
		"an unknown admission plugin":    {flagValues{"enable-admission-plugins": {"NoSuchPlugin"}}, "NoSuchPlugin"},
		"an authority that is not there": {flagValues{"client-ca-file": {"/no/such"}}, "apiserver.client-ca-file: "},
		"a policy that is not there":     {flagValues{"authorization-config": {"/no/such/file"}}, "/no/such/file"},
	} {
		t.Run(name, func(t *testing.T) {
			flags, err := front.ParseFlags(t.Context(), c.flags, defaults(dir)...)
			if err == nil {
				err = flags.Validate(t.Context())
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want it to contain %q", err, c.want)
			}
		})
	}
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	flags, err := front.ParseFlags(t.Context(), flagValues{"bind-address": {"127.0.0.1"}, "secure-port": {port}}, defaults(t.TempDir())...)
	if err != nil {
		t.Fatal(err)
	}
	_, err = front.New(t.Context(), front.Options{Flags: flags, Log: hclog.NewNullLogger()})
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:"+port+" is in use") || !strings.Contains(err.Error(), "apiserver.secure-port") {
		t.Errorf("error is %v", err)
	}
}

func TestPortZeroBecomesTheBoundPort(t *testing.T) {
	t.Parallel()
	s := newServer(t, open(t))
	defer s.Close()
	port := strconv.Itoa(s.Addr().Port)
	if port == "0" || !strings.HasSuffix(s.ExternalURL(), ":"+port) || s.LocalURL() != "https://127.0.0.1:"+port {
		t.Errorf("port is %s, URLs are %s and %s", port, s.ExternalURL(), s.LocalURL())
	}
}

func TestGivenListener(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		address string
		flags   flagValues
		want    string
	}{
		"any port":        {"127.0.0.1:0", nil, ""},
		"nothing set":     {"127.0.0.1:0", flagValues{"bind-address": nil, "secure-port": nil}, ""},
		"all addresses":   {"[::]:0", flagValues{"bind-address": {"0.0.0.0"}}, ""},
		"another address": {"127.0.0.1:0", flagValues{"bind-address": {"192.0.2.1"}}, "apiserver.bind-address is 192.0.2.1"},
		"not all of them": {"127.0.0.1:0", flagValues{"bind-address": {"0.0.0.0"}}, "apiserver.bind-address is 0.0.0.0"},
		"another port":    {"127.0.0.1:0", flagValues{"secure-port": {"7"}}, "apiserver.secure-port is 7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", c.address)
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			values := flagValues{"bind-address": {"127.0.0.1"}, "secure-port": {"0"}}
			for flag, value := range c.flags {
				if values[flag] = value; value == nil {
					delete(values, flag)
				}
			}
			files := pki.FilesIn(certificates)
			flags, err := front.ParseFlags(t.Context(), values, append(front.Defaults(files), front.Default{Flags: []string{"etcd-servers=unix:///nowhere/etcd.sock"}})...)
			if err != nil {
				t.Fatal(err)
			}
			f, err := front.New(t.Context(), front.Options{Flags: flags, Listener: listener, Log: hclog.NewNullLogger()})
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), "listens on "+listener.Addr().String()+", and "+c.want) {
					t.Errorf("got %v, want %s", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if f.Addr().String() != listener.Addr().String() {
				t.Errorf("serves on %s, not on %s", f.Addr(), listener.Addr())
			}
		})
	}
}

// An address that nobody else can reach is no endpoint, unless the operator says that it is one.
func TestAddressesThatAreNoEndpoints(t *testing.T) {
	t.Parallel()
	const reconciler = "endpoint-reconciler-type"
	for name, c := range map[string]struct {
		flags map[string][]string
		want  string // the type of the reconciler, or a part of the error
	}{
		"others reach it":       {map[string][]string{"advertise-address": {"192.0.2.1"}}, "lease"},
		"loopback":              {map[string][]string{"advertise-address": {"127.0.0.1"}}, "apiserver.endpoint-reconciler-type: none"},
		"link-local":            {map[string][]string{"advertise-address": {"fe80::1"}}, "others cannot reach fe80::1"},
		"without the service":   {map[string][]string{"advertise-address": {"127.0.0.1"}, reconciler: {"none"}}, "none"},
		"with it, as is wanted": {map[string][]string{"advertise-address": {"127.0.0.1"}, reconciler: {"lease"}}, "apiserver.advertise-address"},
	} {
		f, err := front.ParseFlags(t.Context(), c.flags, defaults(t.TempDir())...)
		if err != nil {
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if got := f.Value(reconciler); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
