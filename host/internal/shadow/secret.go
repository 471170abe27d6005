package shadow

import (
	"regexp"
	"slices"
	"strings"
)

// masked takes the place of a value that may be secret.
const masked = "(masked)"

// secretName matches names of fields and data whose text is taken for secret.
var secretName = regexp.MustCompile(`(?i)(token|passw|secret|credential|private-?_?key|api-?_?key|authorization|last-applied-configuration)`)

// redact returns a value without what may be secret in it: texts below names that say so, and variables of an environment, whatever
// they are called. The value itself is not changed.
func redact(path string, value any) any {
	switch v := value.(type) {
	case map[string]any:
		clear := make(map[string]any, len(v))
		for key, inner := range v {
			clear[key] = redact(path+"."+key, inner)
		}
		return clear
	case []any:
		clear := make([]any, len(v))
		for i, inner := range v {
			clear[i] = redact(path+"[]", inner)
		}
		return clear
	case string:
		if isSecretPath(path) {
			return masked
		}
	}
	return value
}

// isSecretPath reports whether a part of a path names a secret. The name of a Secret is not secret.
func isSecretPath(path string) bool {
	if strings.HasPrefix(path, "(") {
		return path == "(header Www-Authenticate)"
	}
	parts := strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
	n := len(parts)
	if n >= 2 && parts[n-1] == "value" && slices.Contains(parts[:n-1], "env") {
		return true
	}
	if n >= 1 && slices.Contains([]string{"secretName", "name", "namespace", "kind"}, parts[n-1]) {
		return false
	}
	return slices.ContainsFunc(parts, secretName.MatchString)
}

// mask hides the values of a resource whose objects are secret as a whole. The status is not secret.
func (d difference) mask() difference {
	if d.path == statusCode {
		return d
	}
	if d.old != "" {
		d.old = masked
	}
	if d.new != "" {
		d.new = masked
	}
	return d
}
