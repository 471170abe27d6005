package front

import (
	"slices"
	"strings"
)

// unlisted are the paths that upstream installs without listing them, and those that it
// installs only when it begins to run.
var unlisted = []string{
	"/", "/index.html", "/healthz", "/livez", "/readyz",
	"/debug/pprof", "/debug/pprof/", "/debug/flags", "/debug/flags/", "/debug/api_priority_and_fairness/",
}

// OwnPaths returns the paths for which the front itself answers, whatever stages claim.
// One that ends with a slash, but for "/", stands for all that is below it.
func (f *Frontend) OwnPaths() []string { return slices.Concat(f.server.ListedPaths(), unlisted) }

// Answers says whether the front itself answers requests for a path.
func (f *Frontend) Answers(path string) bool {
	return slices.ContainsFunc(f.OwnPaths(), func(own string) bool {
		return path == own || own != "/" && strings.HasSuffix(own, "/") && strings.HasPrefix(path, own)
	})
}
