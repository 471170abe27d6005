package system

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/certs"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// image is the file system of an image, and what its containers get.
type image struct {
	root string
	Env  []string
	User string
}

// imageForKubeAPIServer is the one that "make dist" makes for the place of kube-apiserver, of the program that the
// tests have. It is linked to libraries, which the image of a release has no need of, and has them here.
func imageForKubeAPIServer(t *testing.T) image {
	t.Helper()
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	dir, program := t.TempDir(), filepath.Join(bin, "catena")
	build := filepath.Join(dir, "build")
	for _, d := range []string{"build/" + runtime.GOARCH, "build/share", "out"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(program, filepath.Join(build, runtime.GOARCH, "catena")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", ".", "-images", "-version", "v1.0.0", "-build", build,
		"-out", filepath.Join(dir, "out"), runtime.GOARCH)
	cmd.Dir = filepath.Join(cluster.Root(), "packaging")
	cmd.Env = append(cluster.Environ(), "SOURCE_DATE_EPOCH=1700000000")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	img := image{root: filepath.Join(dir, "root")}
	img.unpack(t, filepath.Join(dir, "out", "catena_1.0.0_kube-apiserver_oci.tar"))
	libraries, _ := exec.CommandContext(t.Context(), "ldd", program).Output() // it fails if there are none
	for _, library := range regexp.MustCompile(`/\S+`).FindAllString(string(libraries), -1) {
		content, err := os.ReadFile(library)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(img.root+library), 0o755)
		}
		if err == nil {
			err = os.WriteFile(img.root+library, content, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return img
}

// unpack reads an archive of an OCI image layout with one image.
func (img *image) unpack(t *testing.T, path string) {
	t.Helper()
	blobs := t.TempDir()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	extract(t, blobs, tar.NewReader(f))
	type described struct{ Digest string }
	var manifest struct {
		Config    described
		Layers    []described
		Manifests []described
	}
	blob := func(digest string) string { return filepath.Join(blobs, "blobs", strings.ReplaceAll(digest, ":", "/")) }
	read := func(file string, v any) {
		t.Helper()
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, v)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for file := filepath.Join(blobs, "index.json"); ; file = blob(manifest.Manifests[0].Digest) {
		manifest.Manifests = nil
		if read(file, &manifest); len(manifest.Manifests) == 0 {
			break
		}
	}
	var config struct{ Config *image }
	config.Config = img
	read(blob(manifest.Config.Digest), &config)
	for _, layer := range manifest.Layers {
		f, err := os.Open(blob(layer.Digest))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		gz, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		extract(t, img.root, tar.NewReader(gz))
	}
}

func extract(t *testing.T, dir string, from *tar.Reader) {
	t.Helper()
	for {
		h, err := from.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(path, h.FileInfo().Mode())
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, path)
		default:
			var content []byte
			if content, err = io.ReadAll(from); err == nil {
				err = os.WriteFile(path, content, h.FileInfo().Mode())
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// kubeadm's manifest runs with the image, as a container runtime does it: with the image's file system, which is
// read-only, its environment and its user, with the host's keys, which root alone can read. There is nothing but one
// volume. Commands that are typed in the container find the host.
func TestStaticPodOfTheImage(t *testing.T) {
	t.Parallel()
	if err := exec.Command("unshare", "--mount", "true").Run(); os.Geteuid() != 0 || err != nil {
		t.Skip("mounts of one's own take root and util-linux")
	}
	img, pod, dir := imageForKubeAPIServer(t), staticPod(t), t.TempDir()
	if img.User != "" {
		t.Errorf("the user of the image is %q", img.User)
	}
	c := pod.Spec.Containers[0]
	if err := certs.CreatePKIAssets(kubeadmConfig(img.root + kubeadmPKI)); err != nil {
		t.Fatal(err)
	}
	mounts := []string{"/proc", "/dev"}
	for _, mount := range c.VolumeMounts {
		mounts = append(mounts, mount.MountPath)
	}
	for _, path := range mounts {
		if err := os.MkdirAll(img.root+path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	port, err := cluster.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	etcd := startKubeadmEtcd(t, dir, img.root+kubeadmPKI)
	paths := strings.NewReplacer("https://127.0.0.1:2379", etcd, "--secure-port=6443", "--secure-port="+port)
	const container = `set -e; root=$1; shift
mount --bind "$root" "$root"
mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -o remount,bind,ro "$root"
mount -t tmpfs volume "$root` + certVolume + `"
exec env -i "$@"`
	chroot, err := exec.LookPath("chroot")
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"--mount", "sh", "-c", container, "sh", img.root}, img.Env...)
	args = append(args, chroot, img.root) // which looks for the command in PATH of the image
	for _, arg := range c.Command {
		args = append(args, paths.Replace(arg))
	}
	p := startProgram(t, dir, c.Name, "unshare", args...)
	client := kubeadmClient(t, img.root+kubeadmPKI)
	for _, probe := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
		awaitProbe(t, p, client, "https://127.0.0.1:"+port+probe.HTTPGet.Path)
	}
	typed := func(args ...string) string {
		t.Helper()
		args = append([]string{"--target", fmt.Sprint(p.PID()), "--mount", "--root", "/usr/bin/catena"}, args...)
		cmd := exec.CommandContext(t.Context(), "nsenter", args...)
		cmd.Env = img.Env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%q: %v", args, err)
		}
		return string(out)
	}
	if got := typed("status"); strings.Count(got, " serving ") != 3 {
		t.Errorf("status:\n%s", got)
	}
	if got := typed("swap", "core", "--binary", "builtin"); !strings.HasPrefix(got, "stage core swapped: ") {
		t.Error(got)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}
