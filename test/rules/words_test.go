package rules

import "regexp"

// words are expressions that other words say better, by the names that they have in testdata/budgets.txt. They are counted in the
// documents, and in the code, comments and messages that are not of tests.
var words = map[string]*regexp.Regexp{
	"is-none":         regexp.MustCompile(`\b(is|are) none\b`),                                   // is missing; is not a …
	"says-that":       regexp.MustCompile(`\bsays (that|whether)\b`),                             // reports whether; means that
	"nobody":          regexp.MustCompile(`\b([Nn]obody|[Ss]omebody|[Ee]verybody|[Ww]hoever)\b`), // no client, another process
	"in-the-place-of": regexp.MustCompile(`\b[Ii]n the place of\b`),                              // in place of, instead of
	"in-vain":         regexp.MustCompile(`\bin (vain|spite)\b`),                                 // for nothing; regardless of
	"answer":          regexp.MustCompile(`(?i)\banswer(s|ed|ing)?\b`),                           // response
	"folder":          regexp.MustCompile(`(?i)\bfolders?\b`),                                    // directory
	"stranger":        regexp.MustCompile(`\b[Ss]tranger(s|'s)?\b`),                              // unknown client
}

// countWords adds how often a text has each of the words.
func countWords(sizes map[size]int, text string) {
	for name, expression := range words {
		sizes[size{"words", name}] += len(expression.FindAllStringIndex(text, -1))
	}
}
