package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/catena-dev/catena/sdk"
)

const (
	otherPrefix = "other"
	filePrefix  = "catena-stage-"
	// askedKey is the variable of the environment that says whether a stage claims everything.
	askedKey = "BENCHMARK_ASKED"
)

// otherStage is the name of the nth stage that is none of Kubernetes'.
func otherStage(n int) string { return fmt.Sprintf("%s%d", otherPrefix, n) }

// stageFile is the binary of a stage that linkStages has made.
func stageFile(dir, name string) string { return filepath.Join(dir, filePrefix+name) }

// linkStages makes binaries of n stages: this program, which is a stage under the name of one.
func linkStages(dir string, n int) error {
	for i := range n {
		var err error
		if i == 0 {
			err = copySelf(stageFile(dir, otherStage(0)))
		} else {
			err = os.Link(stageFile(dir, otherStage(0)), stageFile(dir, otherStage(i)))
		}
		if err != nil {
			return fmt.Errorf("make the binary of a stage: %w", err)
		}
	}
	return nil
}

func copySelf(path string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	in, err := os.Open(self)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err = io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

// runStage is the program as a stage, and reports whether it was one.
func runStage() bool {
	name, ok := strings.CutPrefix(filepath.Base(os.Args[0]), filePrefix)
	if !ok {
		return false
	}
	sdk.Main(sdk.Stage{Name: name, Summary: "declines each request", New: declining,
		Needs: &sdk.Needs{Claims: []sdk.Claim{sdk.Prefix("/")}}})
	return true
}

// declining is the handler of a stage that hands on each request, of which it gets none unless it claims them.
func declining(env *sdk.Env) (http.Handler, error) {
	if os.Getenv(askedKey) == "true" {
		env.ClaimPrefix("/")
	}
	return env.Next, nil
}
