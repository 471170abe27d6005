// Stage readonly freezes a server: nobody changes anything, but who is exempt.
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
	Message string   `json:"message" jsonschema:"what those who are refused are told"`
	Groups  []string `json:"groups" jsonschema:"groups whose members may go on writing"`
	Paths   []string `json:"paths" jsonschema:"beginnings of paths that may be written"`
}

func main() {
	sdk.Main(sdk.Stage{Name: "readonly", Summary: "freezes the server", New: readonly, Config: defaults()})
}

func defaults() Config {
	return Config{
		Frozen: true, Message: "this server is frozen",
		// The server's own parts, and those who keep it going.
		Groups: []string{"system:masters", "system:catena:stages", "system:nodes"},
		Paths:  []string{"/apis/coordination.k8s.io/", "/apis/authorization.k8s.io/", "/apis/authentication.k8s.io/"},
	}
}

func readonly(env *sdk.Env) (http.Handler, error) {
	var cfg Config
	if err := env.Config(&cfg); err != nil || !cfg.Frozen {
		return nil, err // without a handler and a claim, nothing comes this way
	}
	env.ClaimPrefix("/")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if reads(r) || sdk.UserFrom(r.Context()).In(cfg.Groups...) || exempt(r.URL.Path, cfg.Paths) {
			env.Next.ServeHTTP(w, r)
			return
		}
		sdk.AuditAnnotation(r, "readonly.catena.dev/refused", "true")
		sdk.Error(w, cfg.Message, http.StatusForbidden)
	}), nil
}

// reads tells whether a request changes nothing. A GET that asks for another protocol
// is a way into a container.
func reads(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return r.Header.Get("Upgrade") == ""
	}
	return false
}

// exempt looks at paths that mean what they say alone.
func exempt(p string, beginnings []string) bool {
	return p == path.Clean(p) && slices.ContainsFunc(beginnings, func(b string) bool { return strings.HasPrefix(p, b) })
}
