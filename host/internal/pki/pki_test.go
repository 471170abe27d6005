package pki

import (
	"crypto/x509"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/keyutil"
)

func TestEnsureMakesFilesThatFitTogether(t *testing.T) {
	t.Parallel()
	p, err := Ensure(Options{Dir: filepath.Join(t.TempDir(), "a", "pki"), Hosts: []string{"192.0.2.7", "0.0.0.0", "API.example.com.", "2001:db8::1"}})
	if err != nil {
		t.Fatal(err)
	}
	f := p.Files()
	assertPrivate(t, filepath.Dir(f.CA))
	for _, pair := range [][2]string{
		{f.CA, f.CAKey}, {f.Serving, f.ServingKey}, {f.KubeletClient, f.KubeletClientKey},
		{f.FrontProxyCA, f.FrontProxyCAKey}, {f.FrontProxyClient, f.FrontProxyClientKey},
	} {
		if err := CheckPair(pair[0], pair[1], time.Now()); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{
		"localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local", "192.0.2.7", "api.example.com", "2001:db8::1",
	} {
		verify(t, f.Serving, f.CA, x509.VerifyOptions{DNSName: name})
	}
	usage := x509.VerifyOptions{KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	kubelet := verify(t, f.KubeletClient, f.CA, usage)
	if !slices.Equal(kubelet.Subject.Organization, []string{"system:masters"}) {
		t.Errorf("groups of the kubelet client are %v", kubelet.Subject.Organization)
	}
	verify(t, f.FrontProxyClient, f.FrontProxyCA, usage)
	if keys, err := keyutil.PublicKeysFromFile(f.ServiceAccountPublicKey); err != nil || len(keys) != 1 {
		t.Errorf("public keys for tokens are %v, %v", keys, err)
	}
}

func TestEnsureChangesNothingThatIsGood(t *testing.T) {
	t.Parallel()
	opts := Options{Dir: t.TempDir(), Hosts: []string{"192.0.2.7", "b.example.com", "a.example.com"}}
	ensure(t, opts)
	before := contents(t, opts.Dir)
	slices.Reverse(opts.Hosts)
	ensure(t, opts)
	for path, data := range contents(t, opts.Dir) {
		if before[path] != data {
			t.Errorf("%s has changed", path)
		}
	}
}

func TestEnsureRenews(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Options)
		want   []string
	}{
		"nothing a month and a day before the end": {
			func(o *Options) { o.Now = in(validity - renewBefore - 24*time.Hour) }, nil,
		},
		"what ends within a month": {
			func(o *Options) { o.Now = in(validity - renewBefore + 24*time.Hour) },
			[]string{"apiserver-kubelet-client.crt", "apiserver.crt", "front-proxy-client.crt"},
		},
		"what has expired": {
			func(o *Options) { o.Now = in(validity + 24*time.Hour) },
			[]string{"apiserver-kubelet-client.crt", "apiserver.crt", "front-proxy-client.crt"},
		},
		"the serving certificate for another address": {
			func(o *Options) { o.Hosts = []string{"192.0.2.8"} }, []string{"apiserver.crt"},
		},
		"a certificate that was deleted": {
			func(o *Options) { _ = os.Remove(filepath.Join(o.Dir, "apiserver.crt")) }, []string{"apiserver.crt"},
		},
		"a public key that was deleted": {
			func(o *Options) { _ = os.Remove(filepath.Join(o.Dir, "sa.pub")) }, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := Options{Dir: t.TempDir(), Hosts: []string{"192.0.2.7"}}
			ensure(t, opts)
			before := contents(t, opts.Dir)
			c.change(&opts)
			ensure(t, opts)
			var changed []string
			for path, data := range contents(t, opts.Dir) {
				if before[path] != data {
					changed = append(changed, filepath.Base(path))
				}
			}
			slices.Sort(changed)
			if !slices.Equal(changed, c.want) {
				t.Errorf("changed files are %v, want %v", changed, c.want)
			}
		})
	}
}

func TestEnsureFinishesAnInterruptedStart(t *testing.T) {
	t.Parallel()
	opts := Options{Dir: t.TempDir()}
	if err := newKey(FilesIn(opts.Dir).CAKey); err != nil {
		t.Fatal(err)
	}
	if err := newKey(FilesIn(opts.Dir).ServingKey); err != nil {
		t.Fatal(err)
	}
	ensure(t, opts)
}

func TestEnsureRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(t *testing.T, f Files, o *Options)
		want  []string
	}{
		"an authority that has expired": {
			func(_ *testing.T, _ Files, o *Options) { o.Now = in(11 * validity) }, []string{"ca.crt expired on", "start over"},
		},
		"an authority of the future": {
			func(_ *testing.T, _ Files, o *Options) { o.Now = in(-validity) }, []string{"ca.crt is not valid before", "clock"},
		},
		"an authority with another key": {
			func(t *testing.T, f Files, _ *Options) { move(t, f.FrontProxyCAKey, f.CAKey) }, []string{"ca.key is not the key of", "ca.crt", "backup"},
		},
		"an authority without its key": {
			func(t *testing.T, f Files, _ *Options) { remove(t, f.CAKey) }, []string{"ca.key is missing", "backup"},
		},
		"a certificate in place of an authority": {
			func(t *testing.T, f Files, _ *Options) { move(t, f.Serving, f.CA); move(t, f.ServingKey, f.CAKey) }, []string{"ca.crt is no certificate authority"},
		},
		"an authority that is garbage": {
			func(t *testing.T, f Files, _ *Options) { write(t, f.CA, "hello") }, []string{"ca.crt: no certificate in PEM"},
		},
		"a certificate with another key": {
			func(t *testing.T, f Files, _ *Options) { move(t, f.KubeletClientKey, f.ServingKey) }, []string{"apiserver.key is not the key of", "apiserver.crt", "delete both"},
		},
		"a certificate of someone else": {
			func(t *testing.T, f Files, _ *Options) {
				other := ensure(t, Options{Dir: t.TempDir()}).Files()
				move(t, other.Serving, f.Serving)
				move(t, other.ServingKey, f.ServingKey)
			}, []string{"apiserver.crt is not signed by", "of your own"},
		},
		"a certificate without its key": {
			func(t *testing.T, f Files, _ *Options) { remove(t, f.ServingKey) }, []string{"apiserver.key", "delete both"},
		},
		"a token key without which tokens are void": {
			func(t *testing.T, f Files, _ *Options) { remove(t, f.ServiceAccountKey) }, []string{"sa.key is missing"},
		},
		"a public token key of another pair": {
			func(t *testing.T, f Files, _ *Options) {
				move(t, ensure(t, Options{Dir: t.TempDir()}).Files().ServiceAccountPublicKey, f.ServiceAccountPublicKey)
			}, []string{"sa.pub does not hold the public key of"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := Options{Dir: t.TempDir()}
			files := ensure(t, opts).Files()
			c.spoil(t, files, &opts)
			before := contents(t, opts.Dir)
			_, err := Ensure(opts)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error is %q, want it to contain %q", err, want)
				}
			}
			for path, data := range contents(t, opts.Dir) {
				if before[path] != data {
					t.Errorf("%s has changed", path)
				}
			}
		})
	}
}

func TestCheckPair(t *testing.T) {
	t.Parallel()
	f := ensure(t, Options{Dir: t.TempDir()}).Files()
	for name, c := range map[string]struct {
		cert, key string
		now       time.Time
		want      string
	}{
		"good":        {f.Serving, f.ServingKey, time.Now(), ""},
		"expired":     {f.Serving, f.ServingKey, time.Now().Add(2 * validity), "apiserver.crt expired on"},
		"wrong key":   {f.Serving, f.CAKey, time.Now(), "ca.key is not the key of"},
		"no such key": {f.Serving, f.ServingKey + "x", time.Now(), "no such file"},
		"no cert":     {f.ServingKey, f.ServingKey, time.Now(), "no certificate in PEM"},
	} {
		err := CheckPair(c.cert, c.key, c.now)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v, want %q", name, err, c.want)
		}
	}
}

func ensure(t *testing.T, opts Options) *PKI {
	t.Helper()
	p, err := Ensure(opts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func in(d time.Duration) func() time.Time {
	return func() time.Time { return time.Now().Add(d) }
}

func verify(t *testing.T, certFile, caFile string, opts x509.VerifyOptions) *x509.Certificate {
	t.Helper()
	cert, err := loadCert(certFile)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := loadCert(caFile)
	if err != nil {
		t.Fatal(err)
	}
	opts.Roots = x509.NewCertPool()
	opts.Roots.AddCert(ca)
	if _, err := cert.Verify(opts); err != nil {
		t.Errorf("%s for %q: %v", certFile, opts.DNSName, err)
	}
	return cert
}

// contents reads a directory, and checks that other users cannot.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		found[path] = string(data)
		assertPrivate(t, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func assertPrivate(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		t.Errorf("%s has mode %v", path, info.Mode())
	}
}

func move(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, data string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}
