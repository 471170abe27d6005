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
	x := exchangeFrom(r.Context())
	if text = warningText(text); x == nil || text == "" {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.warnings) < maxWarnings && !slices.Contains(x.warnings, text) {
		x.warnings = append(x.warnings, text)
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
func (x *exchange) addWarnings(h http.Header) {
	for _, text := range x.warnings {
		h.Add("Warning", `299 - "`+warningQuoter.Replace(text)+`"`)
	}
	x.warnings = nil
}
