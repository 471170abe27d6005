package thirdparty

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

const module = "github.com/catena-dev/catena"

// published is the work tree as a third party gets it: a module of a proxy.
type published struct {
	version string
	env     []string
}

// publish makes a module proxy of the work tree. The version is its content's, so that
// no cache holds another content for it; what the caches get is removed with the test.
func publish(t *testing.T) published {
	t.Helper()
	files := sources(t)
	sum := sha256.New()
	for _, f := range files {
		sum.Write([]byte(f.name))
		sum.Write(f.text)
	}
	p := published{version: "v0.0.0-20260101000000-" + hex.EncodeToString(sum.Sum(nil))[:12]}
	proxy := t.TempDir()
	at := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"list":              []byte(p.version + "\n"),
		p.version + ".info": []byte(`{"Version":"` + p.version + `","Time":"2026-01-01T00:00:00Z"}`),
		p.version + ".mod":  goMod(t, files),
		p.version + ".zip":  archive(t, p.version, files),
	} {
		if err := os.WriteFile(filepath.Join(at, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p.env = []string{
		"GOPROXY=file://" + filepath.ToSlash(proxy) + "," + goEnv(t, "GOPROXY"),
		"GOSUMDB=off", // this module is in no database, and the others are checked when it is built itself
		"GOFLAGS=-mod=mod -buildvcs=false", "GOWORK=off",
	}
	t.Cleanup(func() { forget(goEnv(t, "GOMODCACHE"), p.version) })
	return p
}

type source struct {
	name string
	text []byte
}

// sources are the files of the module, without what is built or made at run time.
func sources(t *testing.T) []source {
	t.Helper()
	root := cluster.Root()
	var files []source
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, file)
		if d.IsDir() {
			switch name {
			case ".git", "bin", "data":
				return filepath.SkipDir
			}
			if _, err := os.Stat(filepath.Join(file, "go.mod")); d.Name() == "node_modules" || name != "." && err == nil {
				return filepath.SkipDir // a module has no other modules in it
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(file)
		files = append(files, source{filepath.ToSlash(name), text})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func goMod(t *testing.T, files []source) []byte {
	t.Helper()
	for _, f := range files {
		if f.name == "go.mod" {
			return f.text
		}
	}
	t.Fatal("no go.mod")
	return nil
}

// archive is the zip of a module: each name begins with MODULE@VERSION/.
func archive(t *testing.T, version string, files []source) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, f := range files {
		w, err := z.Create(path.Join(module+"@"+version, f.name))
		if err == nil {
			_, err = w.Write(f.text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// forget takes a version out of the module cache, which is read-only.
func forget(cache, version string) {
	dir := filepath.Join(cache, filepath.FromSlash(module)+"@"+version)
	_ = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			return os.Chmod(file, 0o755)
		}
		return nil
	})
	_ = os.RemoveAll(dir)
	downloads, _ := filepath.Glob(filepath.Join(cache, "cache", "download", filepath.FromSlash(module), "@v", version+".*"))
	for _, file := range downloads {
		_ = os.Remove(file)
	}
}
