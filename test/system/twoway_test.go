package system

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// converse is a handler whose request and response depend on each other, as the last segment of the path says.
func converse(w http.ResponseWriter, r *http.Request) {
	control, in := http.NewResponseController(w), bufio.NewScanner(r.Body)
	_ = control.EnableFullDuplex() // HTTP/2 knows nothing else
	switch path.Base(r.URL.Path) {
	case "refuses": // without reading the body
		http.Error(w, "refused", http.StatusForbidden)
		return
	case "begins":
		fmt.Fprintln(w, "READY")
		_ = control.Flush()
	}
	for in.Scan() {
		fmt.Fprintln(w, strings.ToUpper(in.Text()))
		_ = control.Flush()
	}
}

const twoWayObjects = `
apiVersion: v1
kind: Service
metadata: {name: twoway, namespace: default}
spec: {type: ExternalName, externalName: localhost}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.twoway.example.com}
spec: {group: twoway.example.com, version: v1, groupPriorityMinimum: 1000, versionPriority: 15, insecureSkipTLSVerify: true,
  service: {name: twoway, namespace: default, port: PORT}}
---
apiVersion: v1
kind: Node
metadata: {name: twoway}
`

// Both directions of a request go on at the same time over HTTP/2, whichever stage serves it, directly or from another server, and whichever stages
// have had it before.
func TestTwoWay(t *testing.T) {
	t.Parallel()
	reference, err := kubeAPIServer()
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/apis/twoway.example.com/v1" {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "twoway.example.com/v1", "resources": []}`)
			return
		}
		converse(w, r)
	}))
	elsewhere.EnableHTTP2 = true
	elsewhere.StartTLS()
	t.Cleanup(elsewhere.Close)
	_, port, _ := strings.Cut(elsewhere.Listener.Addr().String(), ":")

	l := theLong(t)
	for _, s := range []*cluster.Server{reference.Server, l.Server} {
		apply(t, s, strings.Replace(twoWayObjects, "PORT", port, 1))
		admin := s.Config(cluster.Admin)
		do(t, admin, http.MethodPatch, "/api/v1/nodes/twoway/status", fmt.Sprintf(refusingNode, port), "Content-Type: application/merge-patch+json")
		eventually(t, s.Name+" serves the group", func() bool {
			return do(t, admin, http.MethodGet, "/apis/twoway.example.com/v1", "").code == http.StatusOK
		})
		targets := []string{"/apis/twoway.example.com/v1/answers", "/apis/twoway.example.com/v1/begins", "/api/v1/nodes/twoway/proxy/refuses"}
		wraps := []string{"none"}
		if s == l.Server {
			own := conversations("behind")
			targets = append(targets, own+"answers", own+"begins", own+"refuses")
			wraps = append(wraps, "front", "front,middle")
		}
		for _, target := range targets {
			for _, wrap := range wraps {
				t.Run(fmt.Sprintf("%s, %s, wrapped by %s", s.Name, target, wrap), func(t *testing.T) { talk(t, s, target, wrap) })
			}
		}
	}
}

// conversations are the paths of a stage at which it converses.
func conversations(stage string) string { return "/apis/" + stage + ".example.com/v1/conversations/" }

// talk sends a line when the one before has been answered.
func talk(t *testing.T, s *cluster.Server, target, wrap string) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	body, out := io.Pipe()
	defer out.Close()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+target, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = headerOf([]string{"Authorization: Bearer " + cluster.Admin + "-token", wrapHeader + ": " + wrap})
	if strings.HasSuffix(target, "answers") {
		go func() { _, _ = io.WriteString(out, "one\n") }()
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	var want []string
	switch path.Base(target) {
	case "refuses":
		// The one by the stage, the other by core: the address of the node is a loopback one.
		if text, err := io.ReadAll(in); string(text) != "refused\n" && !strings.Contains(string(text), "address not allowed") {
			t.Errorf("%s, %q, %v", resp.Status, text, err)
		}
		return
	case "begins":
		want = []string{"READY", "TWO", "THREE"}
	case "answers":
		want = []string{"ONE", "TWO", "THREE"}
	}
	for i, next := range []string{"two\n", "three\n", ""} {
		if line, err := in.ReadString('\n'); line != want[i]+"\n" {
			t.Fatalf("%s, %q, %v, want %q", resp.Status, line, err, want[i])
		}
		_, _ = io.WriteString(out, next)
	}
	_ = out.Close()
	if rest, err := io.ReadAll(in); len(rest) > 0 || err != nil {
		t.Errorf("at the end: %q, %v", rest, err)
	}
}
