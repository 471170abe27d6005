package support

import (
	"bytes"
	"regexp"
	"slices"
)

// mask takes the place of a secret.
const mask = "***"

// minSecret is the length of the shortest value that is taken for a secret wherever it stands.
const minSecret = 6

// Secrets are values that must not be in an archive.
type Secrets struct {
	values   [][]byte
	patterns []pattern
}

// pattern is what secrets look like, and what takes their place.
type pattern struct {
	text *regexp.Regexp
	with string
}

// NewSecrets returns secrets with these values, besides what looks like a private key, a token or a password.
func NewSecrets(values ...string) *Secrets {
	s := &Secrets{patterns: []pattern{
		{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\z)`), mask},
		{regexp.MustCompile(`eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]*)?`), mask},
		{regexp.MustCompile(`(?i)\b(bearer|basic) +[A-Za-z0-9+/=._~-]{16,}`), "$1 " + mask},
		// A flag --set of a process, one argument per line.
		{regexp.MustCompile(`\b(stages\.[\w-]+(?:\.(?:env|config)[\w.-]*)?=)[^\n]+`), "$1" + mask},
		{regexp.MustCompile(`(://[^/\s:@]+:)[^/\s@]+@`), "$1" + mask + "@"},
		{regexp.MustCompile(`(?i)\b([\w.-]*(?:password|passwd|secret|token|api[_-]?key)"?[=:] *"?)[^\s"&,;]+`), "$1" + mask},
	}}
	for _, v := range values {
		if len(v) >= minSecret {
			s.values = append(s.values, []byte(v))
		}
	}
	// A longer value may contain a shorter one.
	slices.SortFunc(s.values, func(a, b []byte) int { return len(b) - len(a) })
	return s
}

// Remove returns a text without the secrets.
func (s *Secrets) Remove(text []byte) []byte {
	for _, v := range s.values {
		text = bytes.ReplaceAll(text, v, []byte(mask))
	}
	for _, p := range s.patterns {
		text = p.text.ReplaceAll(text, []byte(p.with))
	}
	return text
}
