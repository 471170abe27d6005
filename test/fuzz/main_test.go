package fuzz

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var (
	duration  = flag.Duration("fuzz.for", time.Minute, "how long the stages run")
	seed      = flag.Uint64("fuzz.seed", 0, "seed of all choices; 0 takes one at random")
	only      = flag.String("fuzz.only", "", "parts of names of faults, separated by commas: stages do nothing else")
	openFiles = flag.Uint64("fuzz.files", 1024, "how many files and sockets the host may have open, and each stage")
	without   = flag.String("fuzz.without", "", "parts of names of faults, separated by commas, that stages leave out")
)

const binaryPrefix = "catena-stage-"

// TestMain runs the tests, or a stage: under the name catena-stage-NAME the test binary is the stage NAME.
func TestMain(m *testing.M) {
	if name, ok := strings.CutPrefix(filepath.Base(os.Args[0]), binaryPrefix); ok {
		os.Exit(runStage(name))
	}
	os.Exit(m.Run())
}
