package kube

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/apistage/apitest"
	"github.com/catena-dev/catena/sdk/stagetest"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// deadline bounds what a test waits for.
const deadline = 60 * time.Second

// flags returns what the host passes to every stage, and more.
func flags(t *testing.T, more ...string) []string {
	t.Helper()
	key := filepath.Join(t.TempDir(), "sa.key")
	writeKey(t, key)
	return append([]string{
		"advertise-address=192.0.2.1",
		"authorization-mode=AlwaysAllow",
		"etcd-servers=" + apitest.Store(t),
		"service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"service-account-key-file=" + key,
		"service-account-signing-key-file=" + key,
		"service-cluster-ip-range=10.0.0.0/24",
	}, more...)
}

func writeKey(t *testing.T, path string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// admin makes the requests of tests and stages: there is no authentication here.
var admin = &sdk.User{Name: "system:apiserver", Groups: []string{"system:masters", "system:authenticated"}}

// chain is a host as small as it can be: it routes by claims and declines.
type chain struct {
	links []*link
}

type link struct {
	*stagetest.Stage
	claims atomic.Pointer[[]sdk.Claim]
	proxy  *httputil.ReverseProxy
}

// startChain starts the stages, which are given from head to tail, and runs their
// post-start hooks.
func startChain(t *testing.T, flags []string, stages ...sdk.Stage) *chain {
	t.Helper()
	c := &chain{links: make([]*link, len(stages))}
	var behind []sdk.Delegate
	for i := len(stages) - 1; i >= 0; i-- {
		l := &link{}
		c.links[i] = l
		l.Stage = stagetest.Launch(t, stages[i], stagetest.Options{
			Flags: flags, User: admin, Next: c.after(i), API: c.after(-1), Delegates: behind,
		})
		target, err := url.Parse(l.URL)
		if err != nil {
			t.Fatal(err)
		}
		l.proxy = &httputil.ReverseProxy{
			Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
			FlushInterval: -1,
		}
		if err := l.Configure(); err != nil {
			t.Fatalf("configure %s: %v", stages[i].Name, err)
		}
		behind = append([]sdk.Delegate{{
			Name: stages[i].Name, ListedPaths: l.Configured.ListedPaths, Claims: stagev1.DecodeClaims(l.Configured.Claims), Handler: l.proxy,
		}}, behind...)
	}
	for i := len(stages) - 1; i >= 0; i-- {
		if err := c.links[i].PrepareRun(); err != nil {
			t.Fatalf("prepare %s: %v", stages[i].Name, err)
		}
		claims := c.links[i].Claims()
		c.links[i].claims.Store(&claims)
		go c.links[i].follow(t.Context())
	}
	c.runHooks(t)
	return c
}

// follow keeps the claims of a stage up to date.
func (l *link) follow(ctx context.Context) {
	stream, err := l.RPC.Watch(ctx, &stagev1.WatchRequest{})
	for err == nil {
		var event *stagev1.Event
		event, err = stream.Recv()
		if changed := event.GetClaimsChanged(); changed != nil {
			var claims []sdk.Claim
			for _, c := range changed.GetClaims() {
				claims = append(claims, sdk.Claim{Path: c.GetPath(), Match: sdk.Match(c.GetMatch())})
			}
			l.claims.Store(&claims)
		}
	}
}

func (l *link) covers(path string) bool {
	claims := l.claims.Load()
	if claims == nil {
		return false
	}
	for _, c := range *claims {
		if c.Covers(path) {
			return true
		}
	}
	return false
}

// after routes to the stages behind the i-th.
func (c *chain) after(i int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, l := range c.links[i+1:] {
			if l != nil && l.covers(r.URL.Path) {
				l.proxy.ServeHTTP(w, r)
				return
			}
		}
		http.NotFound(w, r)
	})
}

// runHooks runs all post-start hooks at once.
func (c *chain) runHooks(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	errs := make(chan error)
	running := 0
	for _, l := range c.links {
		for _, name := range l.Prepared.PostStartHooks {
			running++
			go func() {
				_, err := l.RPC.RunPostStartHook(ctx, &stagev1.RunHookRequest{Name: name})
				errs <- err
			}()
		}
	}
	for range running {
		if err := <-errs; err != nil {
			t.Fatalf("post-start hook: %v", err)
		}
	}
}

// client returns the configuration of a client of the chain.
func (c *chain) client(t *testing.T) *rest.Config {
	t.Helper()
	server := httptest.NewServer(c.after(-1))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return &rest.Config{Host: server.URL, QPS: -1}
}

// healthy returns the errors of all health checks.
func (c *chain) healthy(ctx context.Context) error {
	var failed []error
	for _, l := range c.links {
		r, err := l.RPC.CheckHealth(ctx, &stagev1.CheckHealthRequest{})
		if err != nil {
			return err
		}
		for _, result := range r.Results {
			if result.Error != "" {
				failed = append(failed, errors.New(result.Name+": "+result.Error))
			}
		}
	}
	return errors.Join(failed...)
}

// eventually waits until f returns no error.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(deadline); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}
