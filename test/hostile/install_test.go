package hostile

import (
	"cmp"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// site is a directory with what a server needs, which the user that runs the server owns.
type site struct {
	dir string
	// bin has the binaries of Catena. For another user it is in dir: those of the test may lie where that
	// user cannot go.
	bin string
	// python is set if there is a stage in Python.
	python bool
	// config is the directory of the configuration, in a part of the file system that stages see, and secret a file in it.
	config, secret string
}

// abstract is an abstract socket on which this test listens.
func (s *site) abstract(t *testing.T) string { return listen(t, "@"+s.dir) }

// open is a socket that is open to all.
func (s *site) open(t *testing.T) string {
	dir, err := os.MkdirTemp("/tmp", "hostile-open")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := listen(t, filepath.Join(dir, "open.sock"))
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(path, 0o666)); err != nil {
		t.Fatal(err)
	}
	return path
}

// listen accepts connections on a Unix socket until the test ends.
func listen(t *testing.T, address string) string {
	t.Helper()
	l, err := net.Listen("unix", address)
	if err != nil {
		if strings.Contains(err.Error(), "in use") { // an attack before this one listens
			return address
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return address
}

func newSite(t *testing.T, uid int, m machine) *site {
	t.Helper()
	dir, err := os.MkdirTemp("", "hostile")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &site{dir: dir, python: m == whole && hasPython(t)}
	if s.bin, err = cluster.Bin(); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if uid != os.Geteuid() || m != whole {
		to, catena := cmp.Or(string(m), "bin"), []string{"catena"}
		if m != whole {
			s.copy(t, self, to, "catena")
			catena = []string{"real", "catena"}
		}
		s.copy(t, filepath.Join(s.bin, "catena"), append([]string{to}, catena...)...)
		for _, name := range []string{"aggregator", "core", "extensions"} {
			s.copy(t, filepath.Join(s.bin, "plugins", "catena-stage-"+name), to, "plugins", "catena-stage-"+name)
		}
		s.bin = filepath.Join(dir, to)
	}
	s.configure(t, uid)
	s.copy(t, self, "go", "catena-stage-hostile")
	s.copy(t, self, "posers", "catena-stage-poser")
	for _, of := range []string{"python/catena-stage-hostile-python", "python-poser/catena-stage-poser"} {
		s.copy(t, filepath.Join("testdata", "python", "catena-stage-hostile-python"), of)
		s.copy(t, filepath.Join(cluster.Root(), "examples", "python-hello", "stage_pb2.py"), filepath.Dir(of), "stage_pb2.py")
	}
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = os.Chmod(path, 0o755) // whatever the umask is
		}
		if err == nil && uid != os.Geteuid() {
			err = os.Lchown(path, uid, uid)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// configure writes the configuration. Root has a directory for it in /opt, which every stage sees, as /etc was.
func (s *site) configure(t *testing.T, uid int) {
	t.Helper()
	s.config = s.dir
	if os.Geteuid() == 0 {
		var err error
		if s.config, err = os.MkdirTemp("/opt", "hostile"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(s.config) })
	}
	text, err := os.ReadFile(filepath.Join(cluster.Root(), "configs", "kube-apiserver.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	s.secret = filepath.Join(s.config, "conf.d", "secret.yaml")
	for path, text := range map[string]string{filepath.Join(s.config, "catena.yaml"): string(text), s.secret: "stages: {hostile: {env: {PASSWORD: secret}}}\n"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{s.config, filepath.Dir(s.secret), s.secret, filepath.Join(s.config, "catena.yaml")} {
		if err := os.Lchown(path, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(s.config, 0o755), os.Chmod(filepath.Dir(s.secret), 0o755)); err != nil {
		t.Fatal(err)
	}
}

// copy copies a file: what is linked could not be given to another user.
func (s *site) copy(t *testing.T, from string, to ...string) {
	t.Helper()
	path := filepath.Join(append([]string{s.dir}, to...)...)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	// Not by this process, of which another test may fork a child with the file open: it is busy then.
	if out, err := exec.Command("cp", from, path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

// envRequire names languages without which a machine fails the tests that others leave out.
const envRequire = "CATENA_REQUIRE"

// hasPython reports whether stages in Python run here.
func hasPython(t *testing.T) bool {
	t.Helper()
	out, err := exec.Command("/usr/bin/python3", "-c", "import grpc, google.protobuf").CombinedOutput()
	report := t.Logf
	if slices.Contains(strings.Split(os.Getenv(envRequire), ","), "python") {
		report = t.Fatalf
	}
	if err != nil {
		report("the stage in Python is left out: python3-grpcio and python3-protobuf are not installed: %s", out)
	}
	return err == nil
}
