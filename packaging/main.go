// Command packaging makes the files of a release from what has been built: archives, packages for Debian and Fedora, an
// image of a container, the list of what is in them, and checksums. The same input gives the same files, byte for byte. "make dist"
// runs it.
package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// release is what is to be packaged.
type release struct {
	source  string // the directory of the repository
	build   string // has ARCH/catena, and share with the manual pages
	out     string
	version string
	date    time.Time // of all files
}

func main() {
	log.SetFlags(0)
	r := release{}
	flag.StringVar(&r.source, "source", "..", "`directory` of the repository")
	flag.StringVar(&r.build, "build", "../bin/dist/build", "`directory` of what has been built")
	flag.StringVar(&r.out, "out", "../bin/dist", "`directory` to write to")
	flag.StringVar(&r.version, "version", "", "`version` of the release, as git describe prints it")
	flag.Parse()
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		log.Fatal("SOURCE_DATE_EPOCH: ", err)
	}
	r.date = time.Unix(seconds, 0).UTC()
	if err := r.make(flag.Args()); err != nil {
		log.Fatal(err)
	}
}

// make makes all files of the release.
func (r release) make(archs []string) error {
	for _, arch := range archs {
		tree, err := r.tree(arch)
		if err != nil {
			return err
		}
		for _, step := range []func(arch string, tree []file) error{r.archive, r.packages, r.sbom} {
			if err := step(arch, tree); err != nil {
				return fmt.Errorf("%s: %w", arch, err)
			}
		}
	}
	if err := r.image(archs); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return r.checksums()
}

// name returns the name of a file of the release.
func (r release) name(suffix string) string {
	return filepath.Join(r.out, "catena_"+strings.TrimPrefix(r.version, "v")+"_"+suffix)
}

// write makes a file of the release.
func write(path string, content func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(content(f), f.Close()); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return nil
}

// checksums writes SHA256SUMS, which sha256sum -c reads.
func (r release) checksums() error {
	files, err := filepath.Glob(r.name("*"))
	if err != nil {
		return err
	}
	slices.Sort(files)
	return write(filepath.Join(r.out, "SHA256SUMS"), func(w io.Writer) error {
		for _, path := range files {
			sum, err := digest(path)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(w, "%s  %s\n", sum, filepath.Base(path)); err != nil {
				return err
			}
		}
		return nil
	})
}

// digest returns the SHA-256 of a file in hexadecimal digits.
func digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return fmt.Sprintf("%x", h.Sum(nil)), err
}
