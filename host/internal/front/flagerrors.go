package front

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// keyPattern is a flag as key writes it; flagPattern is a flag as Kubernetes' code
// does, with leading dashes or without.
var (
	keyPattern  = regexp.MustCompile(`\bapiserver\.([a-z0-9]+(?:-[a-z0-9]+)*)`)
	flagPattern = regexp.MustCompile(`(?:--)?[a-z0-9]+(?:-[a-z0-9]+)*`)
	lineBreaks  = regexp.MustCompile(`\s*\n\s*`)
)

// keysIn returns the flags that an error names as apiserver.FLAG.
func keysIn(err error) []string {
	var names []string
	for _, m := range keyPattern.FindAllStringSubmatch(err.Error(), -1) {
		names = append(names, m[1])
	}
	return names
}

// configErrors splits an error of Kubernetes' code, puts each part on one line and replaces
// the names of command line flags by keys of the configuration. A part that names no flag
// gets the key of the flag that it seems to be about as a prefix.
func (f *Flags) configErrors(err error) []error {
	if f.kubernetes {
		return []error{err}
	}
	var all []error
	for _, err := range split(err) {
		text := f.withKeys(lineBreaks.ReplaceAllString(err.Error(), " "))
		if keyPattern.MatchString(text) {
			all = append(all, errors.New(text))
		} else if name := f.guess(text); name != "" {
			all = append(all, fmt.Errorf("%s: %s", key(name), text))
		} else {
			all = append(all, fmt.Errorf("apiserver: %s", text))
		}
	}
	return all
}

// withKeys replaces the flags in a text by their keys. A single word is a flag only after
// dashes.
func (f *Flags) withKeys(text string) string {
	var out strings.Builder
	end := 0
	for _, at := range flagPattern.FindAllStringIndex(text, -1) {
		word := text[at[0]:at[1]]
		name, dashed := strings.CutPrefix(word, "--")
		if f.all.Lookup(name) == nil || !dashed && (!strings.Contains(name, "-") || !standsAlone(text, at)) {
			continue
		}
		out.WriteString(text[end:at[0]] + key(name))
		end = at[1]
	}
	return out.String() + text[end:]
}

// standsAlone reports whether a word is not a part of a path or of another word.
func standsAlone(text string, at []int) bool {
	const joining = "/._-=@"
	before, after := at[0] == 0, at[1] == len(text)
	before = before || !isLetter(text[at[0]-1]) && !strings.ContainsRune(joining, rune(text[at[0]-1]))
	after = after || !isLetter(text[at[1]]) && !strings.ContainsRune("/_-@", rune(text[at[1]]))
	return before && after
}

func isLetter(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// hasWord reports whether the text contains a word, such as a path, that is not a part of
// a longer one.
func hasWord(text, word string) bool {
	for from := 0; word != ""; {
		i := strings.Index(text[from:], word)
		if i < 0 {
			return false
		}
		at := []int{from + i, from + i + len(word)}
		if standsAlone(text, at) {
			return true
		}
		from = at[0] + 1
	}
	return false
}

// guess returns the flag that a text without the name of a flag is about: the longest one
// whose name the text contains with spaces instead of dashes, or else the operator's flag
// whose value it repeats. It is empty without one, or with two of the same length.
func (f *Flags) guess(text string) string {
	words := strings.Fields(strings.ToLower(text))
	for i, word := range words {
		if words[i] = strings.Trim(word, ".,:;()'`\""); strings.ContainsAny(words[i], "-/") {
			words[i] = "."
		}
	}
	plain := "-" + strings.Join(words, "-") + "-"
	var best longest
	for _, name := range f.names() {
		if strings.Contains(name, "-") && strings.Contains(plain, "-"+name+"-") {
			best.add(name, len(name))
		}
	}
	if best.name != "" {
		return best.name
	}
	for _, name := range sortedKeys(f.operator) {
		for _, value := range f.values[name] {
			for _, part := range valueParts(value) {
				if hasWord(text, part) {
					best.add(name, len(part))
				}
			}
		}
	}
	return best.name
}

// valueParts returns a value, its elements and their parts.
func valueParts(value string) []string {
	parts := strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(",;=:", r) })
	for _, p := range parts {
		if group, _, ok := strings.Cut(p, "/"); ok && group != "" {
			parts = append(parts, group)
		}
	}
	return append(parts, value)
}

// longest keeps the name with the greatest length, none if two have it.
type longest struct {
	name   string
	length int
}

func (l *longest) add(name string, length int) {
	switch {
	case length > l.length:
		l.name, l.length = name, length
	case length == l.length && name != l.name:
		l.name = ""
	}
}

// split splits joined errors, of the standard library and of Kubernetes.
func split(err error) []error {
	var parts []error
	switch joined := err.(type) { //nolint:errorlint // only joined errors, not wrapped ones
	case nil:
		return nil
	case utilerrors.Aggregate:
		parts = joined.Errors()
	case interface{ Unwrap() []error }:
		if parts = joined.Unwrap(); errors.Join(parts...).Error() != err.Error() {
			return []error{err} // several errors in one sentence
		}
	default:
		return []error{err}
	}
	var all []error
	for _, part := range parts {
		all = append(all, split(part)...)
	}
	return all
}

// joinUnique joins errors, each once.
func joinUnique(errs []error) error {
	seen := map[string]bool{}
	var all []error
	for _, err := range errs {
		for _, err := range split(err) {
			if !seen[err.Error()] {
				seen[err.Error()] = true
				all = append(all, err)
			}
		}
	}
	return errors.Join(all...)
}
