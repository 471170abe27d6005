// Package apistage makes a stage of a Catena chain from Go types: an API group with storage, validation, admission,
// discovery and OpenAPI, as Kubernetes' own groups have them.
//
//	func main() {
//		sdk.Main(apistage.Group{
//			Name:       "recipes",
//			APIVersion: "kitchen.example.com/v1",
//			Resources:  []apistage.Resource{apistage.Kind[*v1.Recipe]{List: &v1.RecipeList{}}},
//		}.Stage())
//	}
//
// A server that is built otherwise becomes a stage with package apiserver.
package apistage

import (
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/apiserver"
)

// Adapter connects a server to a stage's environment.
//
// Deprecated: use [apiserver.Adapter].
type Adapter = apiserver.Adapter

// Server is a server that is ready to be served.
//
// Deprecated: use [apiserver.Server].
type Server = apiserver.Server

// New returns an adapter for the stage with the environment env.
//
// Deprecated: use [apiserver.New].
func New(env *sdk.Env) (*Adapter, error) { return apiserver.New(env) }

// ClaimsOf returns the claims that follow from what is registered with server.
//
// Deprecated: use [apiserver.ClaimsOf].
func ClaimsOf(server *genericapiserver.GenericAPIServer) []sdk.Claim {
	return apiserver.ClaimsOf(server)
}

// OwnPaths returns the paths that server itself lists.
//
// Deprecated: use [apiserver.OwnPaths].
func OwnPaths(server *genericapiserver.GenericAPIServer) []string { return apiserver.OwnPaths(server) }
