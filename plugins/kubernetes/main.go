// All stages that come with Catena in one program, of the release of Kubernetes that it is built against. Under the
// name of a plugin, such as catena-stage-core, it is that stage.
package main

import (
	"fmt"
	"os"

	"github.com/catena-dev/catena/plugins/builtin"
	"github.com/catena-dev/catena/sdk"
)

func main() {
	stage, ok := builtin.Named(os.Args[0])
	if !ok {
		fmt.Fprintf(os.Stderr, "%s: this is a stage of Catena by its name, such as catena-stage-core\n", os.Args[0])
		os.Exit(2)
	}
	sdk.Main(stage)
}
