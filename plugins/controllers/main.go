// Stage controllers of a Catena chain: kube-controller-manager's controllers.
package main

import (
	"github.com/catena-dev/catena/plugins/builtin"
	"github.com/catena-dev/catena/sdk"
)

func main() { sdk.Main(builtin.Controllers()) }
