package front

import (
	"slices"
	"strings"
)

// unlisted are the paths that Kubernetes' server installs without listing them, and those
// that it installs only when it runs.
var unlisted = []string{
	"/", "/index.html", "/healthz", "/livez", "/readyz",
	"/debug/pprof", "/debug/pprof/", "/debug/flags", "/debug/flags/", StagePagesPath, "/debug/api_priority_and_fairness/",
}

// OwnPaths returns the paths that the front itself serves, whatever stages claim. A path
// that ends with a slash, except "/", includes all paths below it.
func (f *Frontend) OwnPaths() []string {
	return slices.Concat(f.server.Handler.ListedPaths(), unlisted)
}

// Serves reports whether the front itself serves a path.
func (f *Frontend) Serves(path string) bool {
	return slices.ContainsFunc(f.OwnPaths(), func(own string) bool {
		return path == own || own != "/" && strings.HasSuffix(own, "/") && strings.HasPrefix(path, own)
	})
}
