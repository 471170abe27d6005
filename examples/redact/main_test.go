package main

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
)

const secret = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"door","annotations":` +
	`{"kubectl.kubernetes.io/last-applied-configuration":"c2VzYW1l","team":"a"}},"data":{"word":"c2VzYW1l"}}`

// core responds in JSON as core does.
func core(w http.ResponseWriter, r *http.Request) {
	if accept := r.Header.Get("Accept"); strings.Contains(accept, "protobuf") || r.Header.Get("Accept-Encoding") != "" {
		http.Error(w, "encoded", http.StatusNotAcceptable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/configmaps"):
		fmt.Fprint(w, `{"data":{"word":"c2VzYW1l"}}`)
	case r.URL.Query().Get("watch") == "true":
		fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", secret)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case strings.HasSuffix(r.URL.Path, "/broken"):
		fmt.Fprint(w, secret[:len(secret)-10])
	case strings.Contains(r.Header.Get("Accept"), "as=Table"):
		fmt.Fprintf(w, `{"kind":"Table","rows":[{"cells":["door",1],"object":%s}]}`, secret)
	case strings.HasSuffix(r.URL.Path, "/secrets") && r.Method == http.MethodGet:
		fmt.Fprintf(w, `{"kind":"SecretList","items":[%s]}`, secret)
	default:
		fmt.Fprint(w, secret)
	}
}

func start(t *testing.T) *stagetest.Stage {
	t.Helper()
	stage := sdk.Stage{Name: "redact", New: redact, Config: Config{Groups: []string{"operators"}}}
	return stagetest.Start(t, stage, stagetest.Options{Next: http.HandlerFunc(core), Config: Config{Groups: []string{"operators"}}})
}

func TestValuesAreHidden(t *testing.T) {
	t.Parallel()
	stage := start(t)
	operator := &sdk.User{Name: "olga", Groups: []string{"operators"}}
	table := http.Header{"Accept": {"application/json;as=Table;v=v1;g=meta.k8s.io,application/vnd.kubernetes.protobuf"}}
	for _, c := range []struct {
		call  stagetest.Call
		shown bool
	}{
		{stagetest.Call{Path: "/api/v1/namespaces/a/secrets/door"}, false},
		{stagetest.Call{Path: "/api/v1/namespaces/a/secrets"}, false},
		{stagetest.Call{Path: "/api/v1/secrets"}, false},
		{stagetest.Call{Path: "/api/v1/secrets", Header: table}, false},
		{stagetest.Call{Path: "/api/v1/namespaces/a/secrets", Method: http.MethodPost, Body: secret}, false},
		{stagetest.Call{Path: "/api/v1/namespaces/a/secrets/door", Method: http.MethodDelete}, false},
		{stagetest.Call{Path: "/api/v1/namespaces/a/secrets/door", User: operator}, true},
	} {
		got := stage.Do(t, c.call)
		if got.Status != http.StatusOK || strings.Contains(got.Body, "c2VzYW1l") != c.shown || !strings.Contains(got.Body, `"word"`) {
			t.Errorf("%+v: %d %s", c.call, got.Status, got.Body)
		}
		if got.Declined != c.shown {
			t.Errorf("%+v: declined: %t", c.call, got.Declined)
		}
	}
	for _, method := range []string{http.MethodPut, http.MethodPatch} {
		got := stage.Do(t, stagetest.Call{Path: "/api/v1/namespaces/a/secrets/door", Method: method, Body: secret})
		if got.Status != http.StatusForbidden || got.Called > 0 {
			t.Errorf("%s: %d", method, got.Status)
		}
	}
	if resp, err := http.Get(stage.URL + "/api/v1/namespaces/a/secrets/broken"); err == nil {
		defer resp.Body.Close()
		if text, err := bufio.NewReader(resp.Body).ReadString(0); err == nil || strings.Contains(text, "c2VzYW1l") {
			t.Errorf("half an object: %q", text)
		}
	}
}

// A watch shows each event at once, and ends when the stage drains.
func TestWatch(t *testing.T) {
	t.Parallel()
	stage := start(t)
	for _, path := range []string{"/api/v1/secrets?watch=true", "/api/v1/watch/namespaces/a/secrets?watch=true"} {
		resp, err := http.Get(stage.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		event, err := bufio.NewReader(resp.Body).ReadString('\n')
		if err != nil || strings.Contains(event, "c2VzYW1l") || !strings.Contains(event, redacted) {
			t.Errorf("%s: %v %s", path, err, event)
		}
	}
	if n := stage.Drain(t, 20*time.Second); n != 0 {
		t.Errorf("%d requests at the end of the drain", n)
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("main.go")
	if lines := strings.Count(string(text), "\n"); err != nil || lines > 140 {
		t.Errorf("main.go has %d lines, want 140 at most; %v", lines, err)
	}
}
