package front_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/pki"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// deadline bounds whatever a test waits for.
const deadline = time.Minute

// certificates is the directory of those that all servers of the tests have.
var certificates string

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	if certificates, err = os.MkdirTemp("", "catena-front-"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(certificates)
	if _, err := pki.Ensure(pki.Options{Dir: certificates}); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// server is a front with everything that it needs, on a free port.
type server struct {
	*front.Frontend
	files pki.Files
	stop  context.CancelFunc
	// signaled gets the lifecycle signals; it may be nil.
	signaled func(name string, at time.Time)
	// ended gives what Run returned.
	ended chan error
}

type flagValues map[string][]string

// newServer makes a front that does not run yet.
func newServer(t *testing.T, flags flagValues) *server {
	t.Helper()
	return newServerWith(t, flags, func(*front.Options) {})
}

// newServerWith is newServer with other options.
func newServerWith(t *testing.T, flags flagValues, change func(*front.Options)) *server {
	t.Helper()
	files := pki.FilesIn(certificates)
	all := flagValues{"bind-address": {"127.0.0.1"}, "secure-port": {"0"}}
	for name, values := range flags {
		all[name] = values
	}
	defaults := append(front.Defaults(files), front.Default{Flags: []string{"etcd-servers=unix:///nowhere/etcd.sock"}})
	parsed, err := front.ParseFlags(t.Context(), all, defaults...)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{files: files, ended: make(chan error, 1)}
	options := front.Options{Flags: parsed, Log: hclog.NewNullLogger()}
	change(&options)
	s.Frontend, err = front.New(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run makes the server serve until the test ends, or stop is called.
func (s *server) run(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	s.stop = stop
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.ended <- s.Run(ctx, s.signaled)
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
}

// start makes a server whose chain is the handler, and waits until it is ready.
func start(t *testing.T, flags flagValues, chain http.HandlerFunc) *server {
	t.Helper()
	s := newServer(t, flags)
	s.SetChain(chain)
	s.run(t)
	s.waitReady(t)
	return s
}

func (s *server) waitReady(t *testing.T) {
	t.Helper()
	admin := s.admin(t)
	var last string
	eventually(t, "readiness", func() bool {
		a := admin.get(t, "/readyz?verbose")
		last = a.body
		return a.code == http.StatusOK
	}, func() string { return last })
}

// client makes requests with one identity.
type client struct {
	http *http.Client
	url  string
	// token, if not empty, is sent with each request.
	token string
}

func (s *server) client(t *testing.T, certificates ...tls.Certificate) *client {
	t.Helper()
	trust, err := os.ReadFile(s.files.CA)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trust)
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: certificates},
		ForceAttemptHTTP2: true,
	}
	// A server waits a second for connections that clients hold open.
	t.Cleanup(transport.CloseIdleConnections)
	return &client{url: s.LocalURL(), http: &http.Client{Timeout: deadline, Transport: transport}}
}

// admin is a client with the kubelet client's certificate, whose group is that of
// administrators.
func (s *server) admin(t *testing.T) *client {
	t.Helper()
	return s.client(t, keyPair(t, s.files.KubeletClient, s.files.KubeletClientKey))
}

func keyPair(t *testing.T, cert, key string) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// response is a response as a client reads it.
type response struct {
	code   int
	header http.Header
	body   string
}

func (a response) status(t *testing.T) (reason, message string) {
	t.Helper()
	var status struct{ Kind, Reason, Message string }
	if err := json.Unmarshal([]byte(a.body), &status); err != nil || status.Kind != "Status" {
		t.Errorf("body is no Status: %q", a.body)
	}
	return status.Reason, status.Message
}

func (c *client) get(t *testing.T, path string, headers ...string) response {
	t.Helper()
	return c.do(t, http.MethodGet, path, headers...)
}

func (c *client) do(t *testing.T, method, path string, headers ...string) response {
	t.Helper()
	resp, err := c.send(t.Context(), method, path, headers...)
	if err != nil {
		return response{body: err.Error()}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
	}
	return response{resp.StatusCode, resp.Header, string(body)}
}

func (c *client) send(ctx context.Context, method, path string, headers ...string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, nil)
	if err != nil {
		return nil, err
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	return c.http.Do(r)
}

// propagated returns the headers that the propagator adds for a stage.
func propagated(t *testing.T, s *server, r *http.Request) http.Header {
	header := http.Header{}
	for _, line := range strings.Split(strings.TrimSuffix(string(s.Propagator().AppendRequestHeaders(nil, r)), "\r\n"), "\r\n") {
		name, value, ok := strings.Cut(line, ": ")
		if !ok {
			t.Errorf("no header line: %q", line)
		}
		header.Add(name, value)
	}
	return header
}

// user is the content of X-Catena-User.
type user struct {
	Name, UID string
	Groups    []string
	Extra     map[string][]string
}

func propagatedUser(t *testing.T, s *server, r *http.Request) user {
	var u user
	if err := json.Unmarshal([]byte(propagated(t, s, r).Get(stagev1.HeaderUser)), &u); err != nil {
		t.Error(err)
	}
	return u
}

func eventually(t *testing.T, what string, ok func() bool, detail ...func() string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(deadline); !ok(); <-tick.C {
		if time.Now().After(end) {
			for _, d := range detail {
				what += ": " + d()
			}
			t.Fatalf("no %s", what)
		}
	}
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

var errTest = errors.New("what the test expects")
