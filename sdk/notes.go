package sdk

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// AuditAnnotation adds an annotation to the audit event of a request, if there is one.
// Keys are like those of labels, with the name of an organisation in front:
// example.com/reason. An annotation counts until the answer begins, also if the
// request is then declined or handed on; later ones arrive only behind an answer of
// unknown length. The first one with a key stays, as in kube-apiserver.
func AuditAnnotation(r *http.Request, key, value string) {
	x := exchangeFrom(r.Context())
	if x == nil || x.auditLevel == "" {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.annotations == nil {
		x.annotations = map[string]string{}
	}
	if _, there := x.annotations[key]; !there {
		x.annotations[key] = value
	}
}

const (
	// maxWarning is the longest warning, in bytes.
	maxWarning = 1024
	// maxWarnings is how many warnings a stage can add to one answer.
	maxWarnings = 16
)

// Warn adds a warning to the answer to a request, whoever gives that: kubectl and other
// clients show it to their users. It has to be called before the answer begins. A long
// text is cut off, and the same text is added once.
func Warn(r *http.Request, text string) {
	x := exchangeFrom(r.Context())
	if text = warningText(text); x == nil || text == "" {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, w := range x.warnings {
		if w == text {
			return
		}
	}
	if len(x.warnings) < maxWarnings {
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

// writeNotes puts annotations and warnings into the head of an answer.
func (x *exchange) writeNotes(h http.Header) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, text := range x.warnings {
		h.Add("Warning", `299 - "`+warningQuoter.Replace(text)+`"`)
	}
	x.warnings = nil
	x.writeAnnotations(h, stagev1.HeaderAudit)
}

// writeLateNotes puts annotations behind an answer.
func (x *exchange) writeLateNotes(h http.Header) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.writeAnnotations(h, http.TrailerPrefix+stagev1.HeaderAudit)
}

func (x *exchange) writeAnnotations(h http.Header, key string) {
	if len(x.annotations) == 0 {
		return
	}
	text, err := json.Marshal(map[string]any{"annotations": x.annotations})
	if err == nil {
		h.Add(key, ascii(text))
	}
	x.annotations = nil
}

// ascii escapes what a header may not have in a JSON text: it can only be inside strings.
func ascii(text []byte) string {
	var out strings.Builder
	for _, r := range string(text) {
		if r < 0x7f {
			out.WriteByte(byte(r))
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&out, `\u%04x`, unit)
		}
	}
	return out.String()
}
