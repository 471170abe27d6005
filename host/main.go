// Command catena is an API server that is a chain of processes: this one, the
// host, and one plugin process for each stage. See the README.
//
// Under the name of a plugin, such as catena-stage-core, it is that stage. So the stages that
// come with Catena are links to this file, and their processes have the pages of its code in common.
package main

import (
	"os"

	"github.com/catena-dev/catena/host/internal/cli"
	_ "github.com/catena-dev/catena/host/internal/hangup"
	"github.com/catena-dev/catena/host/internal/isolation"
	"github.com/catena-dev/catena/internal/gctune/startgc"
	"github.com/catena-dev/catena/plugins/builtin"
	"github.com/catena-dev/catena/sdk"
)

// version is the version of Catena, set by the linker.
var version = "unknown"

func main() {
	isolation.Dispatch()
	if stage, ok := builtin.Named(os.Args[0]); ok {
		sdk.Main(stage)
		return
	}
	startgc.End()
	os.Exit(cli.Main(version))
}
