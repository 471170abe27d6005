package grants

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk/claim"
	"github.com/catena-dev/catena/sdk/stagev1"
)

func parse(t *testing.T, texts ...string) []claim.Claim {
	t.Helper()
	var all []claim.Claim
	for _, text := range texts {
		c, err := claim.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// Claims outside of the Kubernetes API need no grant; those that could cover one of its paths do.
func TestNeedsGrant(t *testing.T) {
	t.Parallel()
	free := []string{
		"/hello", "/hello/**", "/hello/*", "/apis/example.com", "/apis/example.com/**", "/apis/example.com/v1/*", "/tenants/**",
		"/hello/*/**", "/apis/example.com/*/notes/**", "/apiserver", "/healthy", "/apis/notk8s.io/**", "/apis/k8s.io.example.com/**", "/app/",
	}
	guarded := []string{
		"/", "/**", "/*", "/api", "/api/**", "/api/*", "/api/v1/namespaces/default/secrets", "/apis", "/apis/", "/apis/*", "/apis/**",
		"/apis/apps/**", "/apis/apps", "/apis/batch/*", "/apis/rbac.authorization.k8s.io/**", "/apis/k8s.io/**", "/apis/metrics.k8s.io/v1/*",
		"/openapi/v2", "/openapi/**", "/version", "/healthz/*", "/metrics", "/.well-known/**", "//", "//**", "/../api/**", "/./**", "/apis//**",
		"/apis/../api/**", "/*/hello", "/*/**", "/*/*", "/apis/*/v1/**", "/apis/*/v1/*", "/api/v1/namespaces/*/secrets/**",
	}
	for _, text := range free {
		if c := parse(t, text)[0]; NeedsGrant(c) || !(Grants{}).AllowsClaim(c) {
			t.Errorf("%s needs a grant", text)
		}
	}
	for _, text := range guarded {
		c := parse(t, text)[0]
		if !NeedsGrant(c) || (Grants{}).AllowsClaim(c) {
			t.Errorf("%s needs no grant", text)
		}
		if !(Grants{Claims: []claim.Claim{c}}).AllowsClaim(c) || !All().AllowsClaim(c) {
			t.Errorf("%s is not allowed by its grant", text)
		}
	}
	some := Grants{Claims: parse(t, "/apis/apps/**", "/openapi/*", "/api/v1/namespaces/*/secrets/**")}
	for text, want := range map[string]bool{
		"/apis/apps/v1/**": true, "/apis/apps": true, "/apis/**": false, "/apis/batch/**": false, "/openapi/v2": true, "/openapi/**": false, "/**": false,
		"/api/v1/namespaces/*/secrets/**": true, "/api/v1/namespaces/*/secrets/*": true, "/api/v1/namespaces/a/secrets/**": true,
		"/apis/apps/*/deployments": true, "/api/v1/namespaces/*/*": false, "/api/*/namespaces/*/secrets": false, "/api/v1/namespaces/*/secret/**": false,
	} {
		if some.AllowsClaim(parse(t, text)[0]) != want {
			t.Errorf("%s: not %v", text, want)
		}
	}
}

// Whatever its form is, a claim that needs no grant covers no path of the Kubernetes API.
func TestClaimsWithoutGrants(t *testing.T) {
	t.Parallel()
	segments := []string{"", "api", "apis", "apps", "x.k8s.io", "a.test", "v1", "hello", "..", "metrics"}
	paths := []string{""}
	for _, path := range paths {
		for _, segment := range segments {
			paths = append(paths, path+"/"+segment)
			for _, below := range segments {
				paths = append(paths, path+"/"+segment+"/"+below, path+"/"+segment+"/"+below+"/x")
			}
		}
	}
	random, free := rand.New(rand.NewPCG(1, 1)), 0
	for range 20_000 {
		path := ""
		for range 1 + random.IntN(4) {
			path += "/" + pick(random, append(segments, "*", "*", "*")...)
		}
		c := pick(random, claim.Exact, claim.Prefix, claim.Child)(path)
		if NeedsGrant(c) {
			continue
		}
		free++
		for _, path := range paths {
			if c.Covers(path) && isKubernetes(path) {
				t.Fatalf("%s needs no grant, and covers %s", c, path)
			}
		}
	}
	if free < 1000 {
		t.Errorf("%d claims need no grant", free)
	}
}

// What is missing is one error, with what to add.
func TestCheck(t *testing.T) {
	t.Parallel()
	needs := &stagev1.Needs{
		Claims:  stagev1.EncodeClaims(parse(t, "/apis/example.com/**", "/api/**", "/**")),
		Rewrite: true, Delegates: true, SystemRequests: true, Store: stagev1.Needs_OWN, Flags: []string{"authorization-mode"},
		Keys: true, Network: true, Files: []string{"/etc/a", "/var/b:rw"},
	}
	all := Of(needs)
	if got, want := all.String(), `{claims: ["/api/**", "/**"], rewrite: true, delegates: true, systemRequests: true, store: own, keys: true, network: true, files: ["/etc/a", "/var/b:rw"]}`; got != want {
		t.Errorf("needs are %s, want %s", got, want)
	}
	if err := all.Check("a", needs); err != nil {
		t.Error(err)
	}
	if err := (Grants{}).Check("a", nil); err != nil {
		t.Error(err)
	}
	for name, drop := range map[string]func(*Grants){
		"to claim /**": func(g *Grants) { g.Claims = g.Claims[:1] }, "(rewrite)": func(g *Grants) { g.Rewrite = false },
		"to call delegates": func(g *Grants) { g.Delegates = false }, "(systemRequests)": func(g *Grants) { g.SystemRequests = false },
		"keys of its own in the store": func(g *Grants) { g.Store = NoStore }, "(keys)": func(g *Grants) { g.Keys = false },
		"network": func(g *Grants) { g.Network = false }, "the files /var/b:rw": func(g *Grants) { g.Files = g.Files[:1] },
	} {
		g := Of(needs)
		drop(&g)
		err := g.Check("a", needs)
		var missing *MissingError
		if !errors.As(err, &missing) || len(missing.Needs) != 1 || !strings.Contains(missing.Needs[0], name) || len(missing.Add) != len(all.String()) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (Grants{Store: OwnKeys}).Check("a", &stagev1.Needs{Store: stagev1.Needs_REGISTRY}); err == nil {
		t.Error("keys of its own are enough for the registry")
	}
	if err := (Grants{}).CheckClaims("a", parse(t, "/a", "/api", "/b")); err == nil || !strings.Contains(err.Error(), "needs to claim /api:") {
		t.Errorf("claims: %v", err)
	}
}

// A stage gets the flags that it declares, but for those that it is not granted.
func TestSelectFlags(t *testing.T) {
	t.Parallel()
	flags := []string{
		"authorization-mode=RBAC", "encryption-provider-config=", "etcd-cafile=ca", "etcd-prefix=/registry", "etcd-servers=unix:///s",
		"service-account-signing-key-file=k", "tls-private-key-file=k", "v=2",
	}
	own := func() ([]string, error) {
		return []string{"etcd-servers=unix:///own", "etcd-compaction-interval=0s"}, nil
	}
	for name, tc := range map[string]struct {
		grants Grants
		needs  *stagev1.Needs
		want   []string
	}{
		"nothing declared":            {Grants{}, nil, []string{"authorization-mode=RBAC", "v=2"}},
		"nothing needed":              {Grants{}, &stagev1.Needs{}, nil},
		"one":                         {Grants{}, &stagev1.Needs{Flags: []string{"v"}}, []string{"v=2"}},
		"a key without a grant":       {Grants{}, &stagev1.Needs{Flags: []string{"v", "tls-private-key-file"}}, []string{"v=2"}},
		"a key":                       {Grants{Keys: true}, &stagev1.Needs{Flags: []string{"tls-private-key-file"}}, []string{"tls-private-key-file=k"}},
		"all":                         {All(), &stagev1.Needs{Flags: []string{"*"}, Store: stagev1.Needs_REGISTRY}, flags},
		"the store without a grant":   {Grants{}, &stagev1.Needs{Flags: []string{"etcd-servers", "v"}}, []string{"v=2"}},
		"its own keys":                {Grants{Store: OwnKeys}, &stagev1.Needs{Store: stagev1.Needs_OWN}, []string{"etcd-compaction-interval=0s", "etcd-prefix=/registry", "etcd-servers=unix:///own"}},
		"its own, granted all":        {Grants{Store: Registry}, &stagev1.Needs{Store: stagev1.Needs_OWN}, []string{"etcd-compaction-interval=0s", "etcd-prefix=/registry", "etcd-servers=unix:///own"}},
		"its own, nothing declared":   {Grants{Store: OwnKeys}, nil, []string{"authorization-mode=RBAC", "etcd-compaction-interval=0s", "etcd-prefix=/registry", "etcd-servers=unix:///own", "v=2"}},
		"granted a store, needs none": {Grants{Store: Registry}, &stagev1.Needs{}, nil},
		"the registry, not the keys":  {Grants{Store: Registry}, &stagev1.Needs{Store: stagev1.Needs_REGISTRY}, []string{"etcd-cafile=ca", "etcd-prefix=/registry", "etcd-servers=unix:///s"}},
	} {
		if got, err := tc.grants.SelectFlags(tc.needs, flags, own); err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, %v, want %q", name, got, err, tc.want)
		}
	}
	encrypted := append(slices.Clone(flags), "encryption-provider-config=/etc/e")
	if got, err := (Grants{Store: OwnKeys}).SelectFlags(nil, encrypted, own); err == nil {
		t.Errorf("objects would be stored unencrypted: %q", got)
	}
	if _, err := (Grants{}).SelectFlags(nil, encrypted, own); err != nil {
		t.Error(err)
	}
	if got, err := (Grants{Store: OwnKeys, Keys: true}).SelectFlags(&stagev1.Needs{Store: stagev1.Needs_OWN}, encrypted, own); err != nil || !slices.Contains(got, "encryption-provider-config=/etc/e") {
		t.Errorf("with keys: %q, %v", got, err)
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	g := Grants{Claims: parse(t, "/b/**", "/a"), Rewrite: true, Store: OwnKeys, Files: []string{"/etc/x"}}
	if got, want := g.Words(), []string{"claims /a", "claims /b/**", "files /etc/x", "rewrite", "store own"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := (Grants{}).Words(); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

// What the lock file tells of needs is checked as the needs themselves are.
func TestCheckWords(t *testing.T) {
	t.Parallel()
	all := &stagev1.Needs{
		Claims:  stagev1.EncodeClaims(parse(t, "/api/**", "/apis/apps")),
		Rewrite: true, Delegates: true, SystemRequests: true, Store: stagev1.Needs_OWN, Keys: true, Network: true, Files: []string{"/etc/a b", "/var/b:rw"},
	}
	for _, needs := range []*stagev1.Needs{all, {}, {Store: stagev1.Needs_REGISTRY}, {Network: true}} {
		words := Of(needs).Words()
		for _, g := range []Grants{{}, {Store: OwnKeys}, {Network: true}, Of(needs), All()} {
			want, got := g.Check("x", needs), g.CheckWords("x", words)
			if (want == nil) != (got == nil) || want != nil && want.Error() != got.Error() {
				t.Errorf("%q with %s: %v, want %v", words, g, got, want)
			}
		}
	}
	if err := (Grants{}).CheckWords("x", []string{"moonlight", "store moon"}); err != nil {
		t.Errorf("what is not known: %v", err)
	}
}

// A stage is as powerful as the server if it has keys, or all of the store.
func TestTrusted(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		grants  Grants
		trusted bool
	}{
		{Grants{Rewrite: true, Delegates: true, Network: true, Store: OwnKeys}, false},
		{Grants{Store: Registry}, true},
		{Grants{Keys: true}, true},
		{All(), true},
	} {
		if got := test.grants.Trusted(); got != test.trusted {
			t.Errorf("%s: %v", test.grants, got)
		}
	}
}
