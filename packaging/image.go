package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
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

// image writes one image for all architectures, as an archive of an OCI image layout. Nothing is in it but Catena, the authorities
// of the web, and the directories that have to be writable.
func (r release) image(archs []string) error {
	var index v1.ImageIndex = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range archs {
		img, err := r.imageOf(arch)
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
	// A name for "docker load" and "podman load".
	if err := top.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": r.version, "io.containerd.image.name": "catena:" + r.version,
	})); err != nil {
		return err
	}
	return r.archiveDir(r.name("oci.tar"), dir)
}

// imageOf is the image for an architecture.
func (r release) imageOf(arch string) (v1.Image, error) {
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
	img, err = mutate.Append(img, mutate.Addendum{
		Layer: layer, History: v1.History{Created: v1.Time{Time: r.date}, CreatedBy: "make dist"},
	})
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: r.date}
	config.Config = v1.Config{
		User: "65532:65532", Entrypoint: []string{"/usr/bin/catena"}, Cmd: []string{"serve"}, WorkingDir: "/var/lib/catena",
		// A volume belongs to the user of the container engine often; what the host makes in it is its own.
		Env: []string{"PATH=/usr/bin", "CATENA_CONFIG=/etc/catena/catena.yaml",
			"CATENA_DATA_DIR=/var/lib/catena/data", "CATENA_RUNTIME_DIR=/var/lib/catena/data/run"},
		ExposedPorts: map[string]struct{}{"6443/tcp": {}},
		Volumes:      map[string]struct{}{"/var/lib/catena": {}, "/tmp": {}},
		Labels: map[string]string{
			"org.opencontainers.image.title": "Catena", "org.opencontainers.image.version": r.version,
			"org.opencontainers.image.source": "https://github.com/catena-dev/catena", "org.opencontainers.image.licenses": "Apache-2.0",
		},
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
