package front

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// keyPattern is a flag as key writes it; flagPattern is a flag as Kubernetes' code
// does, with dashes in front of it or without.
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

// inWordsOfConfig takes an error of Kubernetes' code apart, puts each part on one line
// and turns the names of command line flags in it into keys of the configuration. A
// part that names no flag gets the one in front that it seems to be about.
func (f *Flags) inWordsOfConfig(err error) []error {
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

// withKeys writes the flags in a text as keys. A single word is one only after dashes.
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

// standsAlone tells whether a word is no part of a path or of another word.
func standsAlone(text string, at []int) bool {
	const inWords = "/._-=@"
	before, after := at[0] == 0, at[1] == len(text)
	before = before || !isLetter(text[at[0]-1]) && !strings.ContainsRune(inWords, rune(text[at[0]-1]))
	after = after || !isLetter(text[at[1]]) && !strings.ContainsRune("/_-@", rune(text[at[1]]))
	return before && after
}

func isLetter(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// hasWord tells whether a word, such as a path, is in the text, and not as part of
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

// guess returns the flag that a text without the name of one is about: one whose name
// it has in plain words, or else the one of the operator's whose value it repeats. It
// is empty if there is none, or more than one of the same length.
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

// valueParts are a value and its elements, and of those the parts.
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

// split takes joined errors, of the standard library and of Kubernetes, apart.
func split(err error) []error {
	var parts []error
	switch joined := err.(type) { //nolint:errorlint // only what joins, not what wraps
	case nil:
		return nil
	case utilerrors.Aggregate:
		parts = joined.Errors()
	case interface{ Unwrap() []error }:
		if parts = joined.Unwrap(); errors.Join(parts...).Error() != err.Error() {
			return []error{err} // wraps several in one sentence
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
	told := map[string]bool{}
	var all []error
	for _, err := range errs {
		for _, err := range split(err) {
			if !told[err.Error()] {
				told[err.Error()] = true
				all = append(all, err)
			}
		}
	}
	return errors.Join(all...)
}
