// Command catena is an API server that is a chain of processes: this one, the
// host, and one plugin process for each stage. See the README.
package main

import (
	"os"

	"github.com/catena-dev/catena/host/internal/cli"
	"github.com/catena-dev/catena/host/internal/isolation"
)

// version is the version of Catena, set by the linker.
var version = "unknown"

func main() {
	isolation.Dispatch()
	os.Exit(cli.Main(version))
}
