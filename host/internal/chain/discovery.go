package chain

import (
	"slices"
	"strings"
)

// IsDiscovery reports whether a path is that of a document of discovery or OpenAPI.
func IsDiscovery(path string) bool {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	if slices.ContainsFunc(segments, func(s string) bool { return s == "" || s == "." || s == ".." }) {
		return false
	}
	switch segments[0] {
	case "api":
		return len(segments) <= 2
	case "apis":
		return len(segments) <= 3
	case "openapi":
		return true
	}
	return false
}
