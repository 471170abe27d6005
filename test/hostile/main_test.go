package hostile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/catena-dev/catena/sdk"
)

// TestMain runs the tests, or a stage: the test binary is also the stage in Go, and one that
// poses as another.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "catena-stage-hostile":
		sdk.Main(sdk.Stage{Name: "hostile", Needs: &sdk.Needs{}, New: newStage})
	case "catena-stage-poser":
		sdk.Main(sdk.Stage{Name: "core", Needs: &sdk.Needs{}, New: newStage})
	default:
		os.Exit(m.Run())
	}
}
