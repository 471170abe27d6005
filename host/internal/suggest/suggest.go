// Package suggest says what was meant: which word by a misspelt one, and what a value should be.
package suggest

import (
	"errors"
	"strconv"
	"strings"
)

// maxLen bounds the work for words that are too long to be a mistyped key.
const maxLen = 64

// Nearest returns the candidate that takes the fewest edits to come from word, if
// any is near enough to be a misspelling of it: a third of its letters, at least
// one. Case counts for nothing. Of equally near candidates the first wins.
func Nearest(word string, candidates []string) (string, bool) {
	if word == "" || len(word) > maxLen {
		return "", false
	}
	best, found := "", false
	limit := max(1, len(word)/3)
	for _, c := range candidates {
		if len(c) > maxLen {
			continue
		}
		if d := distance(strings.ToLower(word), strings.ToLower(c)); d <= limit {
			best, found, limit = c, true, d-1
		}
	}
	return best, found
}

// DidYouMean is Nearest as the end of an error message: a space and a question in
// brackets, or nothing.
func DidYouMean[S ~string](word S, candidates []S) string {
	words := make([]string, len(candidates))
	for i, c := range candidates {
		words[i] = string(c)
	}
	if best, ok := Nearest(string(word), words); ok {
		return ` (did you mean "` + best + `"?)`
	}
	return ""
}

// distance counts insertions, deletions, replacements and swaps of neighbours that
// make b of a (optimal string alignment).
func distance(a, b string) int {
	before, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			replaced := prev[j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, replaced)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev, cur = prev, cur, before
	}
	return prev[len(b)]
}

// Value says what a value should be, in place of an error of package strconv or time.
func Value(err error) error {
	var number *strconv.NumError
	switch {
	case errors.As(err, &number) && number.Func == "ParseBool":
		return errors.New("want true or false")
	case errors.As(err, &number) && errors.Is(err, strconv.ErrRange):
		return errors.New("the number is too large")
	case errors.As(err, &number):
		return errors.New("want a number")
	case err != nil && strings.HasPrefix(err.Error(), "time: "):
		return errors.New("want a duration, such as 90s or 5m")
	}
	return err
}
