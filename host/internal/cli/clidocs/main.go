// Command clidocs writes the manual pages of catena and the completions for shells below a directory, where a system has them
// below /usr:
//
//	clidocs VERSION DIRECTORY
//
// SOURCE_DATE_EPOCH, in seconds, is the date of the pages.
package main

import (
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/catena-dev/catena/host/internal/cli"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: clidocs VERSION DIRECTORY")
	}
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		log.Fatal("SOURCE_DATE_EPOCH: ", err)
	}
	// Libraries of Kubernetes register flags here, which cobra would add to every page.
	pflag.CommandLine = pflag.NewFlagSet("catena", pflag.ContinueOnError)
	if err := write(cli.Command(os.Args[1]), os.Args[1], os.Args[2], time.Unix(seconds, 0).UTC()); err != nil {
		log.Fatal(err)
	}
}

// write writes all of it.
func write(root *cobra.Command, version, dir string, date time.Time) error {
	root.DisableAutoGenTag = true
	man := filepath.Join(dir, "share/man/man1")
	if err := os.MkdirAll(man, 0o755); err != nil {
		return err
	}
	header := &doc.GenManHeader{Section: "1", Date: &date, Source: "Catena " + version, Manual: "Catena"}
	return errors.Join(
		doc.GenManTree(root, header, man),
		completion(filepath.Join(dir, "share/bash-completion/completions/catena"),
			func(path string) error { return root.GenBashCompletionFileV2(path, true) }),
		completion(filepath.Join(dir, "share/zsh/site-functions/_catena"), root.GenZshCompletionFile),
		completion(filepath.Join(dir, "share/fish/vendor_completions.d/catena.fish"),
			func(path string) error { return root.GenFishCompletionFile(path, true) }),
	)
}

func completion(path string, write func(path string) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := write(path); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
