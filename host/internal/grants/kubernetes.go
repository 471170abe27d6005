package grants

import (
	"slices"
	"strings"

	"github.com/catena-dev/catena/sdk/claim"
)

// NeedsGrant reports whether a claim covers a path of the Kubernetes API, which a stage
// can have only if it is granted by name: the index, everything kube-apiserver serves
// beside groups, and the groups of Kubernetes itself.
func NeedsGrant(c claim.Claim) bool {
	base := strings.TrimSuffix(c.Path, "/")
	switch {
	case c.IsPattern() && strings.HasPrefix(base+"/", "/*/"):
		return true
	case c.Match&^claim.MatchPattern == claim.MatchChild:
		return base == "" || isKubernetes(base+"/x")
	default: // /** is among them, as / is
		return isKubernetes(c.Path)
	}
}

// isKubernetes reports whether a path belongs to the Kubernetes API.
func isKubernetes(path string) bool {
	segments := strings.SplitN(strings.TrimPrefix(path, "/"), "/", 3)
	switch segments[0] {
	case "", "api", "openapi", "version", "healthz", "livez", "readyz", "metrics", "logs", "debug",
		"configz", "flagz", "statusz", "openid", ".well-known", ".", "..":
		return true
	case "apis":
		return len(segments) == 1 || isKubernetesGroup(segments[1])
	}
	return false
}

// isKubernetesGroup reports whether an API group is Kubernetes' own: its name has no dot,
// as that of apps, or is k8s.io or below it.
func isKubernetesGroup(group string) bool {
	return !strings.Contains(group, ".") || group == "k8s.io" || strings.HasSuffix(group, ".k8s.io") || group == "." || group == ".."
}

// Listed divides the paths that a stage lists into those that count and others: it lists what it claims, or is granted
// by name. What is above that may be listed too, such as /apis, but no group version of which the stage has a part.
func (g Grants) Listed(paths []string, claims []claim.Claim) (good, refused []string) {
	own := claim.NewSet(slices.Concat(claims, g.Claims)...)
	for _, path := range paths {
		if isGroupVersion(path) && own.CoversTree(path) || !isGroupVersion(path) && own.Reaches(path) {
			good = append(good, path)
		} else {
			refused = append(refused, path)
		}
	}
	return good, refused
}

// isGroupVersion reports whether a path is that of a version of an API group, such as /apis/apps/v1, or of one without a name.
func isGroupVersion(path string) bool {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	return len(segments) == 3 && segments[0] == "apis" || len(segments) == 2 && segments[0] == "api"
}
