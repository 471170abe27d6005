package sdk

import (
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// maxWarning is the longest warning, in bytes.
	maxWarning = 1024
	// maxWarnings is how many warnings a stage can add to one response.
	maxWarnings = 16
)

// Warn adds a warning to the response to a request, whichever stage sends that: kubectl and
// other clients show it to their users. It has to be called before the response begins. A
// long text is cut off, and the same text is added once.
func Warn(r *http.Request, text string) {
	resp := responseFrom(r.Context())
	if text = warningText(text); resp == nil || text == "" {
		return
	}
	resp.mu.Lock()
	defer resp.mu.Unlock()
	if len(resp.warnings) < maxWarnings && !slices.Contains(resp.warnings, text) {
		resp.warnings = append(resp.warnings, text)
	}
}

// warningText returns the text without what a header may not have.
func warningText(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, " "))
	if len(text) > maxWarning {
		cut := maxWarning
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut]
	}
	return strings.TrimSpace(text)
}

var warningQuoter = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// addWarnings moves the warnings to h. The caller holds the lock.
func (w *response) addWarnings(h http.Header) {
	for _, text := range w.warnings {
		h.Add("Warning", `299 - "`+warningQuoter.Replace(text)+`"`)
	}
	w.warnings = nil
}
