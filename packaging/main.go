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
	build   string // has ARCH/catena and ARCH/kube-1.36, and share with the manual pages
	out     string
	version string
	others  []string  // minor releases of Kubernetes whose stages can take the place of those in the program
	date    time.Time // of all files
}

// product is what is installed, and comes and goes, as one.
type product struct {
	name, summary, description string
	program                    string // path of the file that the list of modules is about
	files                      []file // in the order of their paths
	service                    bool   // systemd has a unit of it
	recommends                 []string
}

func main() {
	log.SetFlags(0)
	r := release{}
	flag.StringVar(&r.source, "source", "..", "`directory` of the repository")
	flag.StringVar(&r.build, "build", "../bin/dist/build", "`directory` of what has been built")
	flag.StringVar(&r.out, "out", "../bin/dist", "`directory` to write to")
	flag.StringVar(&r.version, "version", "", "`version` of the release, such as v1.2.3 or v1.2.3-dev+abcdef0")
	others := flag.String("releases", "", "other minor `releases` of Kubernetes that have packages, with spaces")
	onlyImages := flag.Bool("images", false, "make nothing but the images")
	flag.Parse()
	r.others = strings.Fields(*others)
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		log.Fatal("SOURCE_DATE_EPOCH: ", err)
	}
	r.date = time.Unix(seconds, 0).UTC()
	step := r.make
	if *onlyImages {
		step = r.images
	}
	if err := step(flag.Args()); err != nil {
		log.Fatal(err)
	}
}

// make makes all files of the release.
func (r release) make(archs []string) error {
	for _, arch := range archs {
		products, err := r.products(arch)
		if err != nil {
			return err
		}
		for _, p := range products {
			for _, step := range []func(string, product) error{r.archive, r.packages, r.sbom} {
				if err := step(arch, p); err != nil {
					return fmt.Errorf("%s: %s: %w", arch, p.name, err)
				}
			}
		}
	}
	if err := r.images(archs); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return r.checksums()
}

// name returns the name of a file of the release.
func (r release) name(product, suffix string) string {
	return filepath.Join(r.out, product+"_"+strings.TrimPrefix(r.version, "v")+"_"+suffix)
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
	files, err := filepath.Glob(r.name("catena*", "*"))
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
