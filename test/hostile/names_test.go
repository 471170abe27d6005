package hostile

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/test/internal/cluster"
)

// The stages that claim what others have by name, upstream of the aggregator and between core and extensions.
const (
	squatterHead   = "squatter-head"
	squatterMiddle = "squatter-middle"
)

var squatters = []string{squatterHead, squatterMiddle}

// squatter is a stage without grants that claims the names of others, and says that there is nothing.
type squatter struct {
	env    *sdk.Env
	mu     sync.Mutex
	claims []sdk.Claim
	asked  []string
}

func newSquatter(env *sdk.Env) (http.Handler, error) {
	s := &squatter{env: env}
	s.claim("/apis/early.test", "/apis/free.test")
	return s, nil
}

func (s *squatter) claim(paths ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims == nil {
		s.claims = []sdk.Claim{sdk.Prefix("/" + s.env.Name)}
	}
	for _, path := range paths {
		s.claims = append(s.claims, sdk.Prefix(path))
		s.env.ListPaths("/apis", path, path+"/v1")
	}
	s.env.SetClaims(s.claims...)
}

// ServeHTTP implements http.Handler.
func (s *squatter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if path, ok := strings.CutPrefix(r.URL.Path, "/"+s.env.Name+"/claim"); ok {
		s.claim(path)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.URL.Path == "/"+s.env.Name+"/asked" {
		_, _ = fmt.Fprint(w, strings.Join(s.asked, "\n"))
		return
	}
	s.asked = append(s.asked, r.Method+" "+r.URL.Path)
	w.Header().Set("Content-Type", "application/json")
	if strings.Contains(r.URL.Path, "/things/") {
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		return
	}
	_, _ = fmt.Fprint(w, `{"kind":"ThingList","apiVersion":"early.test/v1","metadata":{},"items":[]}`)
}

// A claim without a grant covers no custom resource, and the garbage collector deletes nothing because of one: the definition is there before the
// claim, or comes after it.
func TestNamesOfOthers(t *testing.T) {
	t.Parallel()
	c := startPlugins(t, squatters, []string{
		"stages." + squatterHead + `={"delegate":"aggregator","lock":"off"}`,
		"stages.core.delegate=" + squatterMiddle, "stages." + squatterMiddle + `={"delegate":"extensions","lock":"off"}`,
		"stages.extensions.delegate=controllers", "stages.controllers={}",
	})
	w := names{t, c.Config(cluster.Admin)}
	w.get("/apis/free.test/v1/things", http.StatusOK) // nobody has it
	w.define("late.test")
	late := w.own("late.test")
	for _, name := range squatters {
		w.get("/"+name+"/claim/apis/late.test", http.StatusOK)
	}
	w.define("early.test")
	early := w.own("early.test")
	gone := w.own("early.test")
	w.send(http.MethodDelete, gone.owner, "", http.StatusOK)
	// When the collector has seen that one owner is gone, it has looked at the others, which came before.
	eventually(t, "what the deleted object owned is deleted", func() bool { return w.code(gone.owned) == http.StatusNotFound })
	for _, o := range []owned{late, early} {
		w.get(o.owner, http.StatusOK)
		w.get(o.owned, http.StatusOK)
	}
	for _, name := range squatters {
		asked := w.get("/"+name+"/asked", http.StatusOK)
		for _, line := range strings.Split(asked, "\n") {
			if strings.Contains(line, ".test/v1/namespaces/default/things") {
				t.Errorf("%s was asked: %s", name, line)
			}
		}
	}
	status, _ := c.Command(t.Context(), "status") // it fails, since something is wrong
	for _, name := range squatters {
		void := "stage " + name + " claims what others have by name, and gets no request for that: "
		if !strings.Contains(status, void+"/apis/early.test/** without a grant, where stage extensions has /apis/early.test by name, ") {
			t.Errorf("the status has nothing of %s:\n%s", name, status)
		}
		eventually(t, "the log names the claims of "+name, func() bool {
			log, err := os.ReadFile(c.Process().Log)
			return err == nil && strings.Contains(string(log), "[WARN]  catena: "+void)
		})
	}
	for _, want := range []string{`catena_fault{kind="claims-void",stage="squatter-head"} 1`, `catena_fault{kind="claims-void",stage="squatter-middle"} 1`} {
		if !strings.Contains(w.get("/metrics", http.StatusOK), want) {
			t.Errorf("no %s", want)
		}
	}
	if events := w.get("/api/v1/events", http.StatusOK); !strings.Contains(events, `"reason":"ClaimsVoid"`) {
		t.Errorf("no event: %.2000s", events)
	}
}

type names struct {
	t      *testing.T
	config *rest.Config
}

// owned is a custom object, and a Secret that belongs to it.
type owned struct{ owner, owned string }

// send makes a request, and returns the body of a response that has to have a status.
func (n names) send(method, path, body string, want int) string {
	n.t.Helper()
	config := rest.CopyConfig(n.config)
	config.WrapTransport = func(next http.RoundTripper) http.RoundTripper { return typed{next} }
	code, text, err := send(n.t.Context(), config, method, path, body)
	if err != nil || code != want {
		n.t.Fatalf("%s %s: %d %.500s %v, want %d", method, path, code, text, err, want)
	}
	return text
}

func (n names) get(path string, want int) string {
	n.t.Helper()
	return n.send(http.MethodGet, path, "", want)
}

func (n names) code(path string) int {
	n.t.Helper()
	code, _, err := send(n.t.Context(), n.config, http.MethodGet, path, "")
	if err != nil {
		n.t.Error(err)
	}
	return code
}

// define makes a definition of custom resources, and returns when it is established.
func (n names) define(group string) {
	n.t.Helper()
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	n.send(http.MethodPost, definitions, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.`+group+`"},
		"spec":{"group":"`+group+`","scope":"Namespaced","names":{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`,
		http.StatusCreated)
	eventually(n.t, "the definition is established", func() bool {
		return strings.Contains(n.get(definitions+"/things."+group, http.StatusOK), `"type":"Established","status":"True"`) ||
			strings.Contains(strings.Join(strings.Fields(n.get(definitions+"/things."+group, http.StatusOK)), ""), `"status":"True","type":"Established"`)
	})
	eventually(n.t, "the custom resource is served", func() bool {
		_, body, err := send(n.t.Context(), n.config, http.MethodGet, "/apis/"+group+"/v1/namespaces/default/things", "")
		return err == nil && strings.Contains(body, `"resourceVersion"`)
	})
}

// own makes a custom object, and a Secret that it owns.
func (n names) own(group string) owned {
	n.t.Helper()
	things := "/apis/" + group + "/v1/namespaces/default/things"
	name := fmt.Sprint("x", time.Now().UnixNano())
	text := n.send(http.MethodPost, things, `{"apiVersion":"`+group+`/v1","kind":"Thing","metadata":{"name":"`+name+`"}}`, http.StatusCreated)
	var made struct {
		Metadata struct{ UID string }
	}
	if err := json.Unmarshal([]byte(text), &made); err != nil || made.Metadata.UID == "" {
		n.t.Fatal(text, err)
	}
	const secrets = "/api/v1/namespaces/default/secrets"
	n.send(http.MethodPost, secrets, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"`+name+`","ownerReferences":[
		{"apiVersion":"`+group+`/v1","kind":"Thing","name":"`+name+`","uid":"`+made.Metadata.UID+`"}]}}`, http.StatusCreated)
	return owned{things + "/" + name, secrets + "/" + name}
}

// typed says that a body is JSON.
type typed struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (h typed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Content-Type", "application/json")
	return h.next.RoundTrip(r)
}
