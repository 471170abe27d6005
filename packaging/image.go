package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	ggcr "github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the user and the group of the image.
const user = 65532

// variant is an image of the same files that is started in another way.
type variant struct {
	suffix string // of its file and of its tag
	config v1.Config
}

// variants are the host with its own command line, as an ordinary user; and with that of kube-apiserver, in whose place
// other programs start it: as whichever user they say, and as root, who can read the keys of kubeadm, if they say none.
func variants() []variant {
	const path = "PATH=/usr/local/bin:/usr/bin"
	return []variant{
		{"", v1.Config{
			User: fmt.Sprintf("%d:%d", user, user), WorkingDir: "/var/lib/catena",
			Entrypoint: []string{"/usr/bin/catena"}, Cmd: []string{"serve"},
			// A volume belongs to the user of the container engine often; what the host makes in it is its own.
			Env: []string{path, "CATENA_CONFIG=/etc/catena/catena.yaml",
				"CATENA_DATA_DIR=/var/lib/catena/data", "CATENA_RUNTIME_DIR=/var/lib/catena/data/run"},
			Volumes: map[string]struct{}{"/var/lib/catena": {}, "/tmp": {}},
		}},
		{"kube-apiserver", v1.Config{
			Entrypoint: []string{"/usr/bin/kube-apiserver"}, WorkingDir: "/",
			// Where "catena status" looks for the host.
			Env: []string{path, "CATENA_DATA_DIR=/var/run/kubernetes/catena"},
		}},
	}
}

// images writes each variant for all architectures, as an archive of an OCI image layout. Nothing is in it but Catena,
// the authorities of the web, and the directories that have to be writable.
func (r release) images(archs []string) error {
	files := map[string]v1.Image{}
	for _, arch := range archs {
		img, err := r.filesOf(arch)
		if err != nil {
			return err
		}
		files[arch] = img
	}
	for _, v := range variants() {
		if err := r.image(v, archs, files); err != nil {
			return err
		}
	}
	return nil
}

func (r release) image(v variant, archs []string, files map[string]v1.Image) error {
	var index v1.ImageIndex = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range archs {
		img, err := r.configured(files[arch], arch, v.config)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	dir, err := os.MkdirTemp(r.out, "image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	top, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	tag, file := strings.ReplaceAll(r.version, "+", "-"), "oci.tar" // which no tag has
	if v.suffix != "" {
		tag, file = tag+"-"+v.suffix, v.suffix+"_"+file
	}
	// A name for "docker load" and "podman load".
	if err := top.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": "catena:" + tag,
	})); err != nil {
		return err
	}
	return r.archiveDir(r.name("catena", file), dir)
}

// filesOf is an image for an architecture that has the files, and does nothing.
func (r release) filesOf(arch string) (v1.Image, error) {
	tree, err := r.tree(arch)
	if err != nil {
		return nil, err
	}
	layer, err := ggcr.LayerFromOpener(func() (io.ReadCloser, error) {
		read, write := io.Pipe()
		go func() { write.CloseWithError(r.root(write, tree)) }()
		return read, nil
	}, ggcr.WithCompressedCaching, ggcr.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	return mutate.Append(img, mutate.Addendum{
		Layer: layer, History: v1.History{Created: v1.Time{Time: r.date}, CreatedBy: "make dist"},
	})
}

// configured is an image with what its containers are.
func (r release) configured(img v1.Image, arch string, is v1.Config) (v1.Image, error) {
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: r.date}
	config.Config = is
	config.Config.ExposedPorts = map[string]struct{}{"6443/tcp": {}}
	config.Config.Labels = map[string]string{
		"org.opencontainers.image.title": "Catena", "org.opencontainers.image.version": r.version,
		"org.opencontainers.image.source":   "https://github.com/catena-dev/catena",
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	return mutate.ConfigFile(img, config)
}

// root writes the file system of the image.
func (r release) root(w io.Writer, tree []file) error {
	t := tarball{tar.NewWriter(w), r.date}
	for _, d := range []tar.Header{
		{Name: "tmp/", Mode: 0o1777},
		{Name: "var/lib/catena/", Mode: 0o700, Uid: user, Gid: user},
	} {
		d.Typeflag = tar.TypeDir
		if err := t.add(d, strings.NewReader(""), 0); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		name    string
		content []byte
	}{
		{"etc/passwd", []byte("root:x:0:0::/:/\ncatena:x:65532:65532::/var/lib/catena:/\n")},
		{"etc/group", []byte("root:x:0:\ncatena:x:65532:\n")},
		{"etc/ssl/certs/ca-certificates.crt", authorities()},
	} {
		h := tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: 0o644}
		if err := t.add(h, bytes.NewReader(f.content), int64(len(f.content))); err != nil {
			return err
		}
	}
	for _, f := range tree {
		if strings.HasPrefix(f.path, "/usr/share/") && f.path != "/usr/share/doc/catena/LICENSE" || strings.HasPrefix(f.path, "/usr/lib/systemd/") {
			continue
		}
		if err := t.addFile(strings.TrimPrefix(f.path, "/"), f); err != nil {
			return err
		}
	}
	// Its name in the place of kube-apiserver, which some manifests find in PATH, and others where Kubernetes' own
	// image has it.
	for _, f := range []file{
		{path: "usr/bin/kube-apiserver", link: "catena"},
		{path: "usr/local/bin/kube-apiserver", link: "../../bin/catena"},
	} {
		if err := t.addFile(f.path, f); err != nil {
			return err
		}
	}
	return t.Close()
}

// authorities are those of the web that Mozilla trusts without a condition, which a file of certificates could not hold.
func authorities() []byte {
	var all bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&all, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // to memory
		}
	}
	return all.Bytes()
}
