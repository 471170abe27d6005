package hostile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/catena-dev/catena/sdk"
)

// The test binary is also the stage.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "catena-stage-hostile" {
		sdk.Main(sdk.Stage{Name: "hostile", Needs: &sdk.Needs{}, New: newHostile})
		return
	}
	os.Exit(m.Run())
}

// target is what the stage is told of its host by the request, as an insider would know it.
type target struct {
	DataDir string `json:"dataDir"`
	Host    string `json:"host"`   // address of the secure port
	Victim  int    `json:"victim"` // process id of another stage
}

const secrets = "/api/v1/namespaces/default/secrets"

// attempt is one thing that the stage tries.
type attempt struct {
	name string
	// try returns what it got; nothing if it was prevented.
	try func(s *hostileStage, r *http.Request) (got string)
}

// hostileStage is the stage with its target.
type hostileStage struct {
	env    *sdk.Env
	target target
}

func newHostile(env *sdk.Env) (http.Handler, error) {
	env.ClaimPrefix("/hostile")
	env.ClaimPrefix("/api", "/apis/apps")
	return &hostile{env: env}, nil
}

// hostile makes its attempts when it is asked to.
type hostile struct{ env *sdk.Env }

// ServeHTTP makes all attempts, and responds with what they got.
func (h *hostile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := &hostileStage{env: h.env}
	if r.URL.Path != "/hostile" {
		h.env.Log.Error("the stage got a request that is not its own", "path", r.URL.Path)
		http.Error(w, "taken over", http.StatusOK)
		return
	}
	if err := json.Unmarshal([]byte(r.FormValue("target")), &s.target); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	results := map[string]string{}
	for _, a := range attempts {
		results[a.name] = a.try(s, r)
	}
	_ = json.NewEncoder(w).Encode(results)
}

// served returns a response that is not a refusal.
func served(resp *http.Response) string {
	if resp == nil {
		return ""
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 100))
	if resp.StatusCode >= http.StatusBadRequest {
		return ""
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, body)
}

// asked returns what a handler responds.
func asked(h http.Handler, r *http.Request) string {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return served(rec.Result())
}

func (s *hostileStage) client(ctx context.Context, header, value string) string {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://catena"+secrets, nil)
	if err != nil {
		return ""
	}
	r.Header.Set(header, value)
	resp, err := s.env.Client().Do(r)
	if err != nil {
		return ""
	}
	return served(resp)
}

func read(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	b := make([]byte, 100)
	n, _ := f.Read(b)
	if n == 0 {
		return ""
	}
	return "read " + filepath.Base(path)
}

func connect(network, address string) string {
	c, err := net.DialTimeout(network, address, time.Second)
	if err != nil {
		return ""
	}
	_ = c.Close()
	return "connected"
}

// sockets are those in the host's directory whose names begin so.
func (s *hostileStage) sockets(prefix string) string {
	dir := filepath.Dir(s.env.Host().Socket)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return connect("unix", filepath.Join(dir, prefix+".sock"))
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) && connect("unix", filepath.Join(dir, e.Name())) != "" {
			return "connected to " + prefix
		}
	}
	return ""
}

func done(err error) string {
	if err != nil {
		return ""
	}
	return "done"
}

// The attempts of the first group are the host's to prevent, those of the second the kernel's.
var attempts = append(protocolAttempts, kernelAttempts...)

var protocolAttempts = []attempt{
	{"secrets through a delegate", func(s *hostileStage, r *http.Request) string {
		for _, d := range s.env.Delegates() {
			if d.Name == "core" {
				again := r.Clone(r.Context())
				again.URL.Path = secrets
				return asked(d.Handler, again)
			}
		}
		return "no delegate"
	}},
	{"secrets through the request of a user who may read them", func(s *hostileStage, r *http.Request) string {
		again := r.Clone(r.Context())
		again.URL.Path = secrets
		return asked(s.env.Call, again)
	}},
	{"secrets with its own client", func(s *hostileStage, r *http.Request) string {
		return s.client(r.Context(), "Accept", "application/json")
	}},
	{"secrets with forged headers", func(s *hostileStage, r *http.Request) string {
		for header, value := range map[string]string{
			"X-Remote-User": "system:apiserver", "X-Remote-Group": "system:masters", "X-Catena-User": `{"name":"system:apiserver"}`,
			"X-Catena-Next": "1", "X-Catena-Delegate": "core", "Impersonate-User": "system:apiserver",
		} {
			if got := s.client(r.Context(), header, value); got != "" {
				return got
			}
		}
		return ""
	}},
	{"claims of Kubernetes' paths at run time", func(s *hostileStage, r *http.Request) string {
		s.env.SetClaims(sdk.Prefix("/hostile"), sdk.Prefix("/"), sdk.Prefix("/api"), sdk.Child("/apis"))
		return "" // the test sees who serves them
	}},
}

var kernelAttempts = []attempt{
	{"the key of the CA", func(s *hostileStage, _ *http.Request) string {
		return read(filepath.Join(s.target.DataDir, "pki", "ca.key"))
	}},
	{"files of the store", func(s *hostileStage, _ *http.Request) string {
		return read(filepath.Join(s.target.DataDir, "etcd", "member", "snap", "db"))
	}},
	{"etcd's socket", func(s *hostileStage, _ *http.Request) string { return s.sockets("etcd") }},
	{"the admin socket", func(s *hostileStage, _ *http.Request) string { return s.sockets("admin") }},
	{"a sibling's socket", func(s *hostileStage, _ *http.Request) string { return s.sockets("core") }},
	{"a sibling's environment", func(s *hostileStage, _ *http.Request) string {
		return read(fmt.Sprintf("/proc/%d/environ", s.target.Victim))
	}},
	{"a signal to a sibling", func(s *hostileStage, _ *http.Request) string {
		return done(syscall.Kill(s.target.Victim, 0))
	}},
	{"tracing a sibling", func(s *hostileStage, _ *http.Request) string {
		err := syscall.PtraceAttach(s.target.Victim)
		if err == nil {
			err = errors.Join(err, syscall.PtraceDetach(s.target.Victim))
		}
		return done(err)
	}},
	{"the network", func(s *hostileStage, _ *http.Request) string { return connect("tcp", s.target.Host) }},
	{"writing beside its binary", func(*hostileStage, *http.Request) string {
		self, err := os.Executable()
		if err != nil {
			return ""
		}
		return done(os.WriteFile(filepath.Join(filepath.Dir(self), "written"), nil, 0o600))
	}},
}
