package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdxlib"
)

// built is a release whose program is this test, in a directory of its own.
func built(t *testing.T) release {
	t.Helper()
	dir := t.TempDir()
	r := release{
		source: "..", build: filepath.Join(dir, "build"), out: dir,
		version: "v1.2.3", others: []string{"1.36"}, date: time.Unix(1700000000, 0).UTC(),
	}
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{
		"amd64/catena": program, "arm64/catena": program, "amd64/kube-1.36": program, "arm64/kube-1.36": program,
		"share/man/man1/catena.1": []byte("page"),
	} {
		path = filepath.Join(r.build, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.make([]string{"amd64", "arm64"}); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRelease(t *testing.T) {
	t.Parallel()
	r, again := built(t), built(t)
	sums, err := os.ReadFile(filepath.Join(r.out, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(sums)) {
		names = append(names, strings.Fields(line)[1])
	}
	var want []string
	for _, product := range []string{"catena-core-1.36", "catena"} {
		for _, arch := range []string{"amd64", "arm64"} {
			for _, suffix := range []string{".deb", ".rpm", ".spdx.json", ".tar.gz"} {
				want = append(want, product+"_1.2.3_linux_"+arch+suffix)
			}
		}
	}
	want = append(want, "catena_1.2.3_kube-apiserver_oci.tar", "catena_1.2.3_oci.tar")
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("files of the release: %q", names)
	}
	if other, _ := os.ReadFile(filepath.Join(again.out, "SHA256SUMS")); !bytes.Equal(sums, other) {
		t.Errorf("the same input gives other files:\n%s\n%s", sums, other)
	}
	file := func(name string) string { return filepath.Join(r.out, name) }
	testStages(t, file("catena-core-1.36_1.2.3_linux_amd64.tar.gz"))
	testSBOM(t, file("catena-core-1.36_1.2.3_linux_amd64.spdx.json"))
	testDeb(t, file("catena-core-1.36_1.2.3_linux_amd64.deb"), "")
	testArchive(t, file("catena_1.2.3_linux_amd64.tar.gz"))
	testImage(t, file("catena_1.2.3_kube-apiserver_oci.tar"), "", "/usr/bin/kube-apiserver")
	testImage(t, file("catena_1.2.3_oci.tar"), "65532:65532", "/usr/bin/catena")
	testSBOM(t, file("catena_1.2.3_linux_amd64.spdx.json"))
	testDeb(t, file("catena_1.2.3_linux_amd64.deb"), "/etc/catena/catena.yaml\n")
}

// entries are the headers of an archive by name.
func entries(t *testing.T, r io.Reader) (headers map[string]*tar.Header, contents map[string][]byte) {
	t.Helper()
	headers, contents = map[string]*tar.Header{}, map[string][]byte{}
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return headers, contents
		}
		if err == nil {
			contents[h.Name], err = io.ReadAll(archive)
		}
		if err != nil {
			t.Fatal(err)
		}
		headers[h.Name] = h
	}
}

func unzipped(t *testing.T, content []byte) io.Reader {
	t.Helper()
	gz, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return gz
}

func testArchive(t *testing.T, path string) {
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	headers, _ := entries(t, unzipped(t, content))
	top := "catena_1.2.3_linux_amd64/"
	for name, want := range map[string]int64{"bin/catena": 0o755, "etc/catena/catena.yaml": 0o644, "share/man/man1/catena.1": 0o644,
		"share/doc/catena/LICENSE": 0o644, "share/doc/catena/docs/config.md": 0o644, "lib/systemd/system/catena.service": 0o644} {
		if h := headers[top+name]; h == nil || h.Mode != want || h.ModTime.Unix() != 1700000000 {
			t.Errorf("%s in the archive: %+v", name, h)
		}
	}
	if h := headers[top+"lib/catena/plugins/catena-stage-core"]; h == nil || h.Linkname != "../../../bin/catena" {
		t.Errorf("plugin in the archive: %+v", h)
	}
}

// testStages looks at the stages of another release, which are one program under four names.
func testStages(t *testing.T, path string) {
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	headers, _ := entries(t, unzipped(t, content))
	const dir = "catena-core-1.36_1.2.3_linux_amd64/lib/catena/kube-1.36/catena-stage-"
	if h := headers[dir+"core"]; h == nil || h.Mode != 0o755 || h.Size == 0 {
		t.Errorf("core in the archive: %+v", h)
	}
	for _, stage := range []string{"aggregator", "extensions", "controllers"} {
		if h := headers[dir+stage]; h == nil || h.Linkname != "catena-stage-core" {
			t.Errorf("%s in the archive: %+v", stage, h)
		}
	}
}

func testImage(t *testing.T, path, user, entrypoint string) {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, files := entries(t, f)
	type described struct {
		Digest   string
		Platform struct{ Architecture string }
	}
	var top, index struct{ Manifests []described }
	read := func(name string, v any) {
		if err := json.Unmarshal(files[name], v); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	blob := func(digest string) string { return "blobs/" + strings.ReplaceAll(digest, ":", "/") }
	read("index.json", &top)
	read(blob(top.Manifests[0].Digest), &index)
	if len(index.Manifests) != 2 || index.Manifests[1].Platform.Architecture != "arm64" {
		t.Fatalf("images of the index: %+v", index)
	}
	var manifest struct {
		Config described
		Layers []described
	}
	read(blob(index.Manifests[0].Digest), &manifest)
	var config struct {
		Config struct {
			User       string
			Entrypoint []string
		}
	}
	read(blob(manifest.Config.Digest), &config)
	if c := config.Config; c.User != user || len(c.Entrypoint) != 1 || c.Entrypoint[0] != entrypoint {
		t.Errorf("configuration of the image: %+v", c)
	}
	headers, _ := entries(t, unzipped(t, files[blob(manifest.Layers[0].Digest)]))
	if h := headers["var/lib/catena/"]; h == nil || h.Uid != 65532 || h.Mode != 0o700 {
		t.Errorf("/var/lib/catena: %+v", h)
	}
	for _, name := range []string{
		"usr/bin/catena", "usr/bin/kube-apiserver", "usr/local/bin/kube-apiserver",
		"usr/lib/catena/plugins/catena-stage-core",
		"etc/ssl/certs/ca-certificates.crt", "etc/catena/catena.yaml",
	} {
		if headers[name] == nil {
			t.Errorf("the image has no %s", name)
		}
	}
}

func testSBOM(t *testing.T, path string) {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	doc, err := spdxjson.Read(f)
	if err == nil {
		err = spdxlib.ValidateDocument(doc)
	}
	if err != nil {
		t.Fatal(err)
	}
	ids := map[spdx.ElementID]bool{}
	found := false
	for _, p := range doc.Packages {
		if ids[p.PackageSPDXIdentifier] {
			t.Errorf("two packages are %s", p.PackageSPDXIdentifier)
		}
		ids[p.PackageSPDXIdentifier] = true
		found = found || p.PackageName == "github.com/goreleaser/nfpm/v2" &&
			strings.HasPrefix(p.PackageExternalReferences[0].Locator, "pkg:golang/github.com/goreleaser/nfpm/v2@v2.")
	}
	if !found {
		t.Error("a module of the program is not in its SBOM")
	}
}

func testDeb(t *testing.T, path, conffiles string) {
	tool, err := exec.LookPath("dpkg-deb")
	if err != nil {
		t.Log("no dpkg-deb")
		return
	}
	out, err := exec.Command(tool, "--info", path, "conffiles").CombinedOutput()
	if conffiles != "" && (err != nil || string(out) != conffiles) {
		t.Errorf("files that an upgrade keeps: %q, %v", out, err)
	}
	out, err = exec.Command(tool, "--field", path, "Version").CombinedOutput()
	if err != nil || string(out) != "1.2.3-1\n" {
		t.Errorf("version of the package: %q, %v", out, err)
	}
}

func TestPackageVersion(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"v1.2.3": "1.2.3", "v1.2.3-rc.1": "1.2.3~rc.1", "v1.2.3-dev+abc1234.dirty": "1.2.3~dev.20231114221320+abc1234.dirty",
		"v1.2.3-dev": "1.2.3~dev.20231114221320",
	} {
		if got := packageVersion(version, time.Unix(1700000000, 0).UTC()); got != want {
			t.Errorf("%s is %s, want %s", version, got, want)
		}
	}
}
