// Stage extensions of a Catena chain: kube-apiserver's custom resources.
package main

import (
	"github.com/catena-dev/catena/plugins/builtin"
	"github.com/catena-dev/catena/sdk"
)

func main() { sdk.Main(builtin.Extensions()) }
