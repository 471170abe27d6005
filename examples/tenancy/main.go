// Stage tenancy gives each tenant a server of its own, /tenants/NAME, which has one
// namespace.
package main

import (
	"errors"
	"net/http"
	"path"
	"regexp"
	"strings"

	"github.com/catena-dev/catena/sdk"
)

// Config of the stage, with the defaults in main.
type Config struct {
	Prefix    string `json:"prefix" jsonschema:"path below which the tenants are"`
	Namespace string `json:"namespace" jsonschema:"prefix of the names of their namespaces"`
}

// Validate returns an error for a prefix that is malformed or belongs to Kubernetes.
func (c *Config) Validate() error {
	if c.Prefix != path.Clean(c.Prefix) || !strings.HasPrefix(c.Prefix, "/") || len(c.Prefix) < 2 || strings.HasPrefix(c.Prefix, "/api") {
		return sdk.ConfigProblem{Key: "prefix", Message: "want a path such as /tenants"}
	}
	return nil
}

func defaults() Config { return Config{Prefix: "/tenants", Namespace: "tenant-"} }

func main() {
	sdk.Main(sdk.Stage{Name: "tenancy", Summary: "a server with one namespace for each tenant", New: tenancy, Config: defaults(),
		Needs: &sdk.Needs{Rewrite: true}})
}

func tenancy(env *sdk.Env) (http.Handler, error) {
	var cfg Config
	if err := env.Config(&cfg); err != nil {
		return nil, err
	}
	env.ClaimPrefix(cfg.Prefix + "/")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tenant, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, cfg.Prefix+"/"), "/")
		namespace := cfg.Namespace + tenant
		inside, err := confine(r.Method, "/"+rest, namespace)
		if err != nil || !label.MatchString(namespace) {
			sdk.Error(w, "tenant "+tenant+" cannot reach this path", http.StatusForbidden)
			return
		}
		sdk.AuditAnnotation(r, "tenancy.stage.catena.dev/namespace", namespace)
		r = r.Clone(r.Context())
		r.URL.Path, r.URL.RawPath = inside, ""
		env.Next.ServeHTTP(w, r)
	}), nil
}

// label is the form of a namespace's name.
var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

var errOutside = errors.New("outside of the namespace")

// confine returns the path in the server of a tenant's path: the same for discovery,
// and one in the namespace for everything else. A resource that has no namespaces is
// not found there.
func confine(method, p, namespace string) (string, error) {
	parts := strings.Split(p[1:], "/")
	var rest []string
	switch {
	case p != path.Clean(p):
		return "", errOutside
	case parts[0] == "api" && len(parts) > 2:
		rest = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		rest = parts[3:]
	case method == http.MethodGet && (parts[0] == "api" || parts[0] == "apis" || parts[0] == "openapi" || p == "/version"):
		return p, nil
	default:
		return "", errOutside
	}
	version := strings.TrimSuffix(p, "/"+strings.Join(rest, "/"))
	switch {
	case rest[0] == "watch" || rest[0] == "proxy": // deprecated forms
		return "", errOutside
	case rest[0] != "namespaces":
		return version + "/namespaces/" + namespace + "/" + strings.Join(rest, "/"), nil
	case len(rest) > 2 && rest[1] == namespace && rest[2] != "finalize" && rest[2] != "status":
		return p, nil
	case len(rest) == 2 && rest[1] == namespace && method == http.MethodGet:
		return p, nil
	}
	return "", errOutside
}
