package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// tarball writes files of one time, which belong to root unless a file says otherwise.
type tarball struct {
	*tar.Writer
	date time.Time
}

// add adds what describes itself in a header; its size comes from the content.
func (t tarball) add(h tar.Header, content io.Reader, size int64) error {
	h.ModTime, h.Size = t.date, size
	if err := t.WriteHeader(&h); err != nil {
		return err
	}
	_, err := io.Copy(t, content)
	return err
}

// addFile adds a file under a name.
func (t tarball) addFile(name string, f file) error {
	if f.link != "" {
		return t.add(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: f.link, Mode: 0o777}, strings.NewReader(""), 0)
	}
	content, err := os.Open(f.source)
	if err != nil {
		return err
	}
	defer content.Close()
	info, err := content.Stat()
	if err != nil {
		return err
	}
	return t.add(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(f.mode)}, content, info.Size())
}

// archive writes an archive that can be extracted anywhere, below /usr/local for example.
func (r release) archive(arch string, p product) error {
	path := r.name(p.name, "linux_"+arch+".tar.gz")
	top := strings.TrimSuffix(filepath.Base(path), ".tar.gz") + "/"
	return write(path, func(w io.Writer) error {
		gz := gzip.NewWriter(w)
		t := tarball{tar.NewWriter(gz), r.date}
		for _, f := range p.files {
			name := top + strings.TrimPrefix(strings.TrimPrefix(f.path, "/usr"), "/")
			if err := t.addFile(name, f); err != nil {
				return err
			}
		}
		return errors.Join(t.Close(), gz.Close())
	})
}

// archiveDir writes the files of a directory as an archive.
func (r release) archiveDir(path, dir string) error {
	return write(path, func(w io.Writer) error {
		t := tarball{tar.NewWriter(w), r.date}
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			name, err := filepath.Rel(dir, path)
			if err != nil {
				return err
			}
			return t.addFile(name, file{source: path, mode: 0o644})
		})
		return errors.Join(err, t.Close())
	})
}
