package hostile

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk"
)

// TestMain runs the tests, or a stage: the test binary is also the stage in Go, and one that
// poses as another.
func TestMain(m *testing.M) {
	switch name := filepath.Base(os.Args[0]); name {
	case "catena-stage-hostile":
		sdk.Main(sdk.Stage{Name: "hostile", Needs: &sdk.Needs{}, New: newStage})
	case "catena-stage-poser":
		sdk.Main(sdk.Stage{Name: "core", Needs: &sdk.Needs{}, New: newStage})
	case "catena-stage-" + forgerUp, "catena-stage-" + forgerDown:
		sdk.Main(sdk.Stage{Name: strings.TrimPrefix(name, "catena-stage-"), Needs: &sdk.Needs{}, Config: forgerConfig{}, New: newForger})
	case "catena-stage-" + squatterHead, "catena-stage-" + squatterMiddle:
		sdk.Main(sdk.Stage{Name: strings.TrimPrefix(name, "catena-stage-"), Needs: &sdk.Needs{}, New: newSquatter})
	case "catena":
		fail(machine(filepath.Base(filepath.Dir(os.Args[0]))).run())
	case responder:
		version, err := strconv.ParseInt(os.Args[1], 10, 64)
		if err == nil {
			err = respond(version)
		}
		fail(err)
	default:
		// The tests wait more than they work; -parallel still has the last word.
		if err := flag.Set("test.parallel", "4"); err != nil {
			fail(err)
		}
		os.Exit(m.Run())
	}
}

// fail ends the process, for a reason if there is one.
func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
