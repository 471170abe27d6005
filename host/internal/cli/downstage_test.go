package cli

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/catena-dev/catena/host/internal/datadir"
	"github.com/catena-dev/catena/host/internal/process/processtest"
)

// get asks the host as its administrator.
func (l *life) get(t *testing.T, path string) (code int, body string) {
	t.Helper()
	client, server := l.admin(t)
	resp, err := client.Get(server + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(b)
}

// admin returns a client of the host with the rights of its administrator, and its URL.
func (l *life) admin(t *testing.T) (client *http.Client, server string) {
	t.Helper()
	var b []byte
	l.until(t, "kubeconfig", func() bool { // which is written beside the start
		var err error
		b, err = os.ReadFile(datadir.AdminKubeconfig(filepath.Join(l.dir, "data")))
		return err == nil
	})
	field := func(name string) string {
		m := regexp.MustCompile(`(?m)^\s*` + name + `: "?([^"\n]+)"?$`).FindSubmatch(b)
		if m == nil {
			t.Fatalf("no %s in %s", name, b)
		}
		return string(m[1])
	}
	data := func(name string) []byte {
		decoded, err := base64.StdEncoding.DecodeString(field(name + "-data"))
		if err != nil {
			t.Fatal(err)
		}
		return decoded
	}
	certificate, err := tls.X509KeyPair(data("client-certificate"), data("client-key"))
	if err != nil {
		t.Fatal(err)
	}
	trust := x509.NewCertPool()
	trust.AppendCertsFromPEM(data("certificate-authority"))
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{RootCAs: trust, Certificates: []tls.Certificate{certificate}},
	}}, field("server")
}

func (l *life) untilReady(t *testing.T, what string) {
	t.Helper()
	l.until(t, what, func() bool { code, _ := l.get(t, "/readyz"); return code == http.StatusOK })
}

// A stage that cannot be started again makes the server unready, and operators are told why.
func TestAStageThatIsDown(t *testing.T) {
	t.Parallel()
	l := newLife(t, "one", "two")
	l.chain(t, "holdTimeout: 100ms", "one config: {greeting: hello}", "two")
	l.start(t)
	l.untilSignal(t, "HasBeenReady")
	if code, body := l.get(t, "/one"); code != http.StatusOK || body != "hello" {
		t.Fatalf("%d %s", code, body)
	}
	path := filepath.Join(l.plugins, "catena-stage-one")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	put := func(b []byte) {
		t.Helper()
		if err := errors.Join(processtest.WriteProgram(path+".next", b), os.Rename(path+".next", path)); err != nil {
			t.Fatal(err)
		}
	}
	put([]byte("#!/bin/sh\nexit 3\n"))
	for _, st := range l.status(t).Stages {
		if st.Stage == "one" {
			if err := syscall.Kill(st.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	var body string
	l.until(t, "503 with the reason", func() bool {
		var code int
		code, body = l.get(t, "/one")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "exited with status 3")
	})
	if !strings.Contains(body, `stage \"one\" is not available: `) || !strings.Contains(body, "; latest failure: ") {
		t.Errorf("the response is %s", body)
	}
	if code, body := l.get(t, "/readyz"); code != http.StatusInternalServerError || !strings.Contains(body, "[-]one/serving failed: reason withheld\n[+]two/serving ok\n") {
		t.Errorf("/readyz: %d %s", code, body)
	}
	if code, body := l.get(t, "/readyz/one/serving"); code != http.StatusInternalServerError || !strings.Contains(body, `stage "one" is down: `) {
		t.Errorf("the check: %d %s", code, body)
	}
	if code, _ := l.get(t, "/two"); code != http.StatusOK {
		t.Errorf("the other stage: %d", code)
	}
	if code, page := l.get(t, "/debug/catena/chain"); code != http.StatusOK || !strings.HasPrefix(page, `{"order":["one","two"],`) {
		t.Errorf("chain: %d %s", code, page)
	}
	put(whole)
	l.untilReady(t, "recovery")
}
