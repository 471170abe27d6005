package apiserver

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// serveUnix serves handler on a Unix socket and returns the socket's path.
func serveUnix(t *testing.T, handler http.Handler) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	return path
}

func TestLoopbackReachesTheSocketInCleartextAndWithTLS(t *testing.T) {
	t.Parallel()
	socket := serveUnix(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		io.WriteString(w, r.Header.Get("Authorization")+" "+r.URL.Path+" "+string(body))
	}))
	config, err := newLoopback(socket, "secret")
	if err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("x", 1<<20)
	for _, url := range []string{"http://catena/a", "https://catena/a", "https://127.0.0.1:6443/a"} {
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			response, err := client.Post(url, "text/plain", strings.NewReader(large))
			if err != nil {
				t.Fatalf("%s: %v", url, err)
			}
			body, err := io.ReadAll(response.Body)
			response.Body.Close()
			if want := "Bearer secret /a " + large; err != nil || string(body) != want {
				t.Errorf("%s: response has %d bytes (%v), want %d", url, len(body), err, len(want))
			}
		}
		client.CloseIdleConnections()
	}
}

func TestTLSBridgeIsTrustedByItsOwnCertificateOnly(t *testing.T) {
	t.Parallel()
	bridge, err := newTLSBridge("catena")
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bridge.certPEM)
	for name, c := range map[string]struct {
		roots *x509.CertPool
		ok    bool
	}{"own": {pool, true}, "other": {x509.NewCertPool(), false}} {
		far, near := net.Pipe()
		inside, err := bridge.open(near)
		if err != nil {
			t.Fatal(err)
		}
		conn := tls.Client(inside, &tls.Config{RootCAs: c.roots, ServerName: "catena"})
		if err := conn.Handshake(); (err == nil) != c.ok {
			t.Errorf("%s certificate: handshake: %v", name, err)
		}
		conn.Close()
		far.Close()
	}
}

func TestNoListenerKnowsTheExternalPort(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"https://10.0.0.1:6443":    "10.0.0.1:6443",
		"https://[fd00::1]:6443":   "[fd00::1]:6443",
		"https://api.example.test": "api.example.test:443",
	} {
		listener, err := newNoListener(url)
		if err != nil || listener.Addr().String() != want {
			t.Errorf("%s: address %v (%v), want %s", url, listener.address, err, want)
		}
		if _, err := listener.Accept(); err == nil {
			t.Errorf("%s: accepts connections", url)
		}
	}
}
