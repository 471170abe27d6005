// Package catenatest runs API servers for tests: each is Catena with an etcd of its own, and leaves nothing, however
// the test ends.
//
//	func TestMine(t *testing.T) {
//		server := catenatest.Start(t)
//		client := kubernetes.NewForConfigOrDie(server.Config)
//		…
//	}
//
// A server is ready within two seconds or so, takes a free port of this machine, and does not sync its files to the
// disk. Tests can be parallel. Stages of one's own take part in its chain, also those of the package under test, which
// need no binary:
//
//	func TestMain(m *testing.M) { catenatest.Main(m, notes.Stage()) }
//
//	server := catenatest.Start(t, catenatest.Options{Stages: []catenatest.Stage{{Name: "notes"}}})
//
// The program is $CATENA_BIN, which may be the directory that has it; if that is not set, catena in PATH; and if there
// is none, it is built, which takes "go get -tool github.com/catena-dev/catena/host" once, and minutes the first time.
package catenatest

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/catena-dev/catena/sdk"
)

// Options say what a server is. The zero value is kube-apiserver, with RBAC.
type Options struct {
	// Stages are those of one's own.
	Stages []Stage
	// Controllers runs those of kube-controller-manager that need no nodes, in a stage: namespaces can be deleted then,
	// and Deployments get Pods.
	Controllers bool
	// Args are more flags of catena serve, such as --set=apiserver.feature-gates=…
	Args []string
}

// Stage is a stage in the chain of a server.
type Stage struct {
	Name string
	// Binary is its plugin; empty for the test's own program, if Main has been given the stage.
	Binary string
	// After is the stage upstream of it. If it is empty, the stage is the first, before aggregator or those before it
	// in Options.
	After string
	// Settings are other keys of stages.NAME of the configuration, such as config, grants or env.
	Settings map[string]any
}

// Server is a server that runs until the test is over.
type Server struct {
	// Config is a client's with all rights, and Kubeconfig a file with the same.
	Config     *rest.Config
	Kubeconfig string

	program string
	cmd     *exec.Cmd
	output  output
	ended   chan struct{}
}

const (
	// startTimeout is for a machine on which dozens of servers start.
	startTimeout = 5 * time.Minute
	stopTimeout  = 30 * time.Second
	// shownLines are the last ones of the log of a server that a test which fails shows.
	shownLines = 100
	prefix     = "catena-stage-"
)

// Main runs the tests, and is to be called by TestMain. A process that a server starts of the test's program as one of
// the stages is that stage.
func Main(m *testing.M, stages ...sdk.Stage) {
	for _, stage := range stages {
		if filepath.Base(os.Args[0]) == prefix+stage.Name {
			sdk.Main(stage)
			return
		}
	}
	os.Exit(m.Run())
}

// Start starts a server, and waits until it is ready. It ends with the test, and with the process of the test. If the
// test fails, the end of the log of the server is part of its output. Of several Options the last counts.
func Start(t testing.TB, options ...Options) *Server {
	t.Helper()
	var o Options
	if n := len(options); n > 0 {
		o = options[n-1]
	}
	program, err := find()
	if err != nil {
		t.Fatal("catenatest: ", err)
	}
	args, err := o.args(t.TempDir())
	if err != nil {
		t.Fatal("catenatest: ", err)
	}
	s := &Server{program: program, cmd: exec.Command(program, args...), ended: make(chan struct{})}
	s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr = environ(), &s.output, &s.output
	s.output.ready = make(chan string, 1)
	if err := s.cmd.Start(); err != nil {
		t.Fatal("catenatest: ", err)
	}
	go func() {
		defer close(s.ended)
		_ = s.cmd.Wait()
	}()
	t.Cleanup(func() {
		s.stop()
		if t.Failed() {
			t.Logf("the end of the log of the server:\n%s", s.output.last(shownLines))
		}
	})
	select {
	case s.Kubeconfig = <-s.output.ready:
	case <-s.ended:
		t.Fatalf("catenatest: the server has ended: %s", s.cmd.ProcessState)
	case <-time.After(startTimeout):
		t.Fatalf("catenatest: the server is not ready after %s", startTimeout)
	}
	if s.Config, err = clientcmd.BuildConfigFromFlags("", s.Kubeconfig); err != nil {
		t.Fatal("catenatest: ", err)
	}
	return s
}

// Catena runs a command for the server, such as Catena("swap", "notes"), and returns what it has printed.
func (s *Server) Catena(args ...string) (string, error) {
	cmd := exec.Command(s.program, append(args, "--data-dir", filepath.Dir(s.Kubeconfig))...)
	cmd.Env = environ()
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("catena %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// Log is what has come so far of what the server and its stages write. A line may come a moment after the command that
// it is about has ended.
func (s *Server) Log() string { return s.output.last(-1) }

func (s *Server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-s.ended:
	case <-time.After(stopTimeout):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
}

// args are those of catena, with a file of the configuration in a directory if one is needed.
func (o Options) args(dir string) ([]string, error) {
	args := []string{"serve", "--ephemeral"}
	if !o.Controllers {
		args = append(args, "--set=stages.controllers.disabled=true")
	}
	stages, head := map[string]any{}, "aggregator"
	for _, s := range o.Stages {
		binary := s.Binary
		if binary == "" {
			own, err := os.Executable()
			if err != nil {
				return nil, err
			}
			binary = filepath.Join(dir, prefix+s.Name)
			if err := linkOrCopy(own, binary); err != nil {
				return nil, err
			}
		}
		binary, err := filepath.Abs(binary)
		if err != nil {
			return nil, err
		}
		settings := map[string]any{"binary": binary, "lock": "off", "delegate": head}
		if s.After == "" {
			head = s.Name
		} else {
			next, ok := downstream[s.After]
			if !ok {
				return nil, fmt.Errorf("stage %q: after %q: want aggregator, core or extensions", s.Name, s.After)
			}
			settings["delegate"] = next
			args = append(args, "--set=stages."+s.After+".delegate="+s.Name)
		}
		maps.Copy(settings, s.Settings)
		stages[s.Name] = settings
	}
	if len(stages) > 0 {
		// JSON is YAML.
		config := map[string]any{"apiVersion": "catena.dev/v1alpha1", "kind": "HostConfiguration", "stages": stages}
		text, err := json.Marshal(config)
		if err != nil {
			return nil, err
		}
		file := filepath.Join(dir, "catena.yaml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return nil, err
		}
		args = append(args, "--config="+file)
	}
	return append(args, o.Args...), nil
}

// linkOrCopy makes a file another name of a program: an isolated stage does not see what a symbolic link names.
func linkOrCopy(program, name string) error {
	if os.Link(program, name) == nil {
		return nil
	}
	content, err := os.ReadFile(program) // it is on another file system
	if err != nil {
		return err
	}
	return os.WriteFile(name, content, 0o755)
}

// downstream is the stage that each of Kubernetes' stages delegates to by itself.
var downstream = map[string]string{"aggregator": "core", "core": "extensions", "extensions": "controllers"}

// environ is that of this process without a configuration of Catena.
func environ() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "CATENA_") {
			env = append(env, v)
		}
	}
	return env
}

// find returns the program.
var find = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("CATENA_BIN"); path != "" {
		info, err := os.Stat(path)
		if err == nil && info.IsDir() {
			path = filepath.Join(path, "catena")
			_, err = os.Stat(path)
		}
		if err != nil {
			return "", fmt.Errorf("CATENA_BIN: %w", err)
		}
		return filepath.Abs(path)
	}
	if path, err := exec.LookPath("catena"); err == nil {
		return filepath.Abs(path)
	}
	return build()
})

// build builds the program in the user's cache, where another process may do the same.
func build() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "catenatest")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	mine := filepath.Join(dir, fmt.Sprint("catena.", os.Getpid()))
	out, err := exec.Command("go", "build", "-o", mine, "github.com/catena-dev/catena/host").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("catena is not in PATH, CATENA_BIN is not set, and it cannot be built: %w\n%s", err, out)
	}
	path := filepath.Join(dir, "catena")
	return path, os.Rename(mine, path)
}

// output keeps what a server writes, and finds its kubeconfig in it.
type output struct {
	ready chan string

	mu   sync.Mutex
	text []byte
	seen bool
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p...)
	if o.seen {
		return len(p), nil
	}
	_, rest, _ := strings.Cut(string(o.text), "export KUBECONFIG=")
	path, _, whole := strings.Cut(rest, "\n")
	if o.seen = whole; whole {
		o.ready <- path
	}
	return len(p), nil
}

// last are the last lines, all if n is negative.
func (o *output) last(n int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines := strings.SplitAfter(string(o.text), "\n")
	if n >= 0 && len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "")
}
