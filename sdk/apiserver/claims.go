package apiserver

import (
	"slices"
	"strings"

	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/catena-dev/catena/sdk"
)

// hostPaths are served by the host, whatever a server registers for them.
var hostPaths = []string{"/", "/healthz", "/livez", "/readyz", "/metrics", "/version", "/debug", "/flagz", "/statusz"}

// OwnPaths returns the paths that server itself lists, without those of its
// delegates and those that the host serves.
func OwnPaths(server *genericapiserver.GenericAPIServer) []string {
	return slices.Compact(slices.DeleteFunc(server.Handler.ListedPaths(), ofHost))
}

func ofHost(path string) bool {
	for _, p := range hostPaths {
		if path == p || p != "/" && strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return false
}

// ClaimsOf returns the claims that follow from what is registered with server:
// the same decision that its Director makes for a request, except that /apis is
// taken alone, not with all that is below it.
func ClaimsOf(server *genericapiserver.GenericAPIServer) []sdk.Claim {
	var claims []sdk.Claim
	for _, service := range server.Handler.GoRestfulContainer.RegisteredWebServices() {
		claims = append(claims, claimsOf(service.RootPath(), service.RootPath() != "/apis")...)
	}
	for _, path := range server.Handler.NonGoRestfulMux.ListedPaths() {
		claims = append(claims, claimsOf(strings.TrimSuffix(path, "/"), strings.HasSuffix(path, "/"))...)
	}
	return claims
}

func claimsOf(path string, prefix bool) []sdk.Claim {
	switch {
	case path == "" || ofHost(path):
		return nil
	case prefix:
		return []sdk.Claim{sdk.Prefix(path)}
	default:
		return []sdk.Claim{sdk.Exact(path), sdk.Exact(path + "/")}
	}
}
