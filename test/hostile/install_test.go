package hostile

import (
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
}

func newSite(t *testing.T, uid int) *site {
	t.Helper()
	dir, err := os.MkdirTemp("", "hostile")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &site{dir: dir, python: hasPython(t)}
	if s.bin, err = cluster.Bin(); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if uid != os.Geteuid() {
		s.copy(t, filepath.Join(s.bin, "catena"), "bin", "catena")
		for _, name := range []string{"aggregator", "core", "extensions"} {
			s.copy(t, filepath.Join(s.bin, "plugins", "catena-stage-"+name), "bin", "plugins", "catena-stage-"+name)
		}
		s.bin = filepath.Join(dir, "bin")
	}
	s.copy(t, filepath.Join(cluster.Root(), "configs", "catena.yaml"), "catena.yaml")
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
