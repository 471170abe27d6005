// Stage readonly freezes a server: only exempt users and paths can be written.
package main

import (
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/catena-dev/catena/sdk"
)

// Config of the stage, with the defaults in main.
type Config struct {
	Frozen  bool     `json:"frozen" jsonschema:"whether the server is frozen"`
	Message string   `json:"message" jsonschema:"message of the error for refused requests"`
	Groups  []string `json:"groups" jsonschema:"groups whose members may still write"`
	Paths   []string `json:"paths" jsonschema:"prefixes of paths that may be written"`
}

func main() {
	sdk.Main(sdk.Stage{Name: "readonly", Summary: "freezes the server", New: readonly, Config: defaults(),
		Needs: &sdk.Needs{Claims: []sdk.Claim{sdk.Prefix("/")}}})
}

func defaults() Config {
	return Config{
		Frozen: true, Message: "this server is frozen",
		// The server's own components, and its operators.
		Groups: []string{"system:masters", "system:catena:stages", "system:nodes"},
		Paths:  []string{"/apis/coordination.k8s.io/", "/apis/authorization.k8s.io/", "/apis/authentication.k8s.io/"},
	}
}

func readonly(env *sdk.Env) (http.Handler, error) {
	var cfg Config
	if err := env.Config(&cfg); err != nil || !cfg.Frozen {
		return nil, err // without a claim, the stage gets no requests
	}
	env.ClaimPrefix("/")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if reads(r) || sdk.UserFrom(r.Context()).In(cfg.Groups...) || exempt(r.URL.Path, cfg.Paths) {
			env.Next.ServeHTTP(w, r)
			return
		}
		sdk.AuditAnnotation(r, "readonly.stage.catena.dev/refused", "true")
		sdk.Error(w, cfg.Message, http.StatusForbidden)
	}), nil
}

// reads reports whether a request changes nothing. A GET that asks for another protocol
// can run commands in a container.
func reads(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return r.Header.Get("Upgrade") == ""
	}
	return false
}

// exempt reports whether a path has one of the prefixes. A path that is not clean is never exempt.
func exempt(p string, prefixes []string) bool {
	return p == path.Clean(p) && slices.ContainsFunc(prefixes, func(b string) bool { return strings.HasPrefix(p, b) })
}
