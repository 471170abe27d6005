package system

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/test/internal/cluster"
)

// runStage is the main function of the stage with this name.
func runStage(name string) {
	switch {
	case os.Getenv(envAsk) != "":
		printStatus()
	case os.Getenv(envFault) != "":
		misbehave(name, os.Getenv(envFault))
	case name == "core":
		sdk.Main(otherCore())
	case badStages[name] != nil:
		sdk.Main(sdk.Stage{Name: name, New: badStages[name]})
	case name == "parts":
		sdk.Main(partsGroup().Stage())
	case name == "joiner":
		sdk.Main(sdk.Stage{Name: name, New: newJoiner})
	case name == "stray":
		sdk.Main(sdk.Stage{Name: name, New: newStray})
	case name == "worker":
		sdk.Main(sdk.Stage{Name: name, New: newWorker})
	case name == "forger":
		sdk.Main(sdk.Stage{Name: name, New: newForger})
	case name == "wardle":
		sdk.Main(sdk.Stage{Name: name, New: newWardle})
	default:
		sdk.Main(sdk.Stage{Name: name, Version: "v1", Summary: "tests the chain", New: newTestStage})
	}
}

// plugins makes a directory with the test binary as the binaries of stages.
func plugins(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	if err := linkPlugins(dir, names...); err != nil {
		t.Fatal(err)
	}
	return dir
}

func linkPlugins(dir string, names ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, name := range names {
		path := filepath.Join(dir, "catena-stage-"+name)
		if os.Link(self, path) == nil {
			continue
		}
		b, err := os.ReadFile(self)
		if err == nil {
			err = cluster.WriteProgram(path, b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// testStage looks at every request, serves those below /stage/NAME, and passes on all
// others: unchanged, or, if the header X-Wrap has its name, with its name added to
// the response.
type testStage struct {
	env    *sdk.Env
	config testStageConfig
}

type testStageConfig struct {
	// Complete is a file: until it exists, the stage says that it does not know all of
	// its paths yet.
	Complete string `json:"complete"`
	Greeting string `json:"greeting"`
	// Serves are paths that the stage claims and lists besides its own, if it is not to
	// see all requests.
	Serves []string `json:"serves"`
}

// wrapHeader names the stages that are to wrap a request.
const wrapHeader = "X-Wrap"

func newTestStage(env *sdk.Env) (http.Handler, error) {
	s := &testStage{env: env}
	if err := env.Config(&s.config); err != nil {
		return nil, err
	}
	if s.config.Serves == nil {
		env.ClaimPrefix("/")
	} else {
		env.Claim(append(s.config.Serves, "/stage/"+env.Name)...)
	}
	env.ListPaths(append(s.config.Serves, "/stage/"+env.Name)...)
	if s.config.Complete != "" {
		complete := make(chan struct{})
		env.MuxComplete("complete", complete)
		go s.await(complete)
	}
	return s, nil
}

func (s *testStage) await(complete chan<- struct{}) {
	for {
		if _, err := os.Stat(s.config.Complete); !errors.Is(err, fs.ErrNotExist) {
			close(complete)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (s *testStage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	own := "/stage/" + s.env.Name
	if strings.Contains(r.URL.Path, smuggled) {
		s.env.Log.Error("reached by what nobody was to send", "uri", r.RequestURI, "header", fmt.Sprint(r.Header))
	}
	switch {
	case strings.Contains(r.Header.Get(wrapHeader), s.env.Name) && r.Header.Get("Upgrade") != "":
		w.Header().Add(wrappedHeader, s.env.Name) // the writer's methods are not called
		s.env.Next.ServeHTTP(w, r)
	case strings.Contains(r.Header.Get(wrapHeader), s.env.Name):
		s.env.Next.ServeHTTP(&nameWriter{ResponseWriter: w, name: s.env.Name}, r)
	case r.URL.Path == own:
		s.echo(w, r)
	case r.URL.Path == own+"/wait":
		s.wait(w, r)
	case r.URL.Path == execOf(s.env.Name):
		shout(w, r)
	case strings.HasPrefix(r.URL.Path, upgrades(s.env.Name)):
		switchProtocols(w, r)
	case strings.HasPrefix(r.URL.Path, conversations(s.env.Name)):
		converse(w, r)
	default:
		s.env.Next.ServeHTTP(w, r)
	}
}

// execOf is a path of a stage at which it switches protocols. It looks like an exec,
// since upstream ends all others after a minute.
func execOf(stage string) string { return "/apis/" + stage + ".example.com/v1/things/any/exec" }

// smuggled is in the paths of requests that are hidden in others.
const smuggled = "smuggled"

// seen is what a stage knows of a request.
type seen struct {
	Stage, Method, URI, Host string
	User                     *sdk.User
	Header, Trailer          http.Header
	// BodyBytes is how much of the body came.
	BodyBytes int64
	BodyError string
	// Left is the time until the deadline, 0 if there is none.
	Left time.Duration
	// Greeting is that of the stage's configuration.
	Greeting string
}

func (s *testStage) echo(w http.ResponseWriter, r *http.Request) {
	e := seen{
		Stage: s.env.Name, Method: r.Method, URI: r.RequestURI, Host: r.Host,
		User: sdk.UserFrom(r.Context()), Header: r.Header,
		Greeting: s.config.Greeting,
	}
	if deadline, ok := r.Context().Deadline(); ok {
		e.Left = time.Until(deadline)
	}
	n, err := io.Copy(io.Discard, r.Body)
	e.BodyBytes, e.Trailer = n, r.Trailer
	if err != nil {
		e.BodyError = err.Error()
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(e)
}

// wait responds only when its context has ended; why it has ended is in the log.
func (s *testStage) wait(_ http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get("id")
	s.env.Log.Error("waits", "id", id)
	<-r.Context().Done()
	s.env.Log.Error("told to end", "id", id, "by", r.Context().Err())
	time.Sleep(5 * time.Second)
}

// shout switches to a protocol that sends everything back in capital letters.
func shout(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "shout" {
		http.Error(w, "this path is for the protocol shout", http.StatusBadRequest)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n")
	for {
		line, err := buffered.ReadString('\n')
		if err != nil {
			return
		}
		fmt.Fprint(conn, strings.ToUpper(line))
	}
}

// wrappedHeader is what a wrapping stage adds to a response.
const wrappedHeader = "X-Wrapped-By"

// nameWriter adds a name to the head of a response.
type nameWriter struct {
	http.ResponseWriter
	name string
}

func (w *nameWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *nameWriter) WriteHeader(code int) {
	w.Header().Add(wrappedHeader, w.name)
	w.ResponseWriter.WriteHeader(code)
}
