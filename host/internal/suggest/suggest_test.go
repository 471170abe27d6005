package suggest

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	candidates := []string{"delegate", "binary", "sha256", "config", "env", "startTimeout", "identity"}
	for _, tc := range []struct{ word, want string }{
		{"delgate", "delegate"},
		{"DELEGATE", "delegate"},
		{"bianry", "binary"},
		{"starttimeout", "startTimeout"},
		{"en", "env"},
		{"evn", "env"},
		{"sha265", "sha256"},
		{"colour", ""},
		{"x", ""},
		{"", ""},
		{strings.Repeat("delegate", 100), ""},
	} {
		got, ok := Nearest(tc.word, candidates)
		if got != tc.want || ok != (tc.want != "") {
			t.Errorf("Nearest(%q) = %q, %v, want %q", tc.word, got, ok, tc.want)
		}
	}
}

func TestNearestPrefersTheNearer(t *testing.T) {
	t.Parallel()
	if got, _ := Nearest("abcdef", []string{"abcdxx", "abcdex", "abcdey"}); got != "abcdex" {
		t.Errorf("got %q, want the first of the nearest", got)
	}
}

func TestDidYouMean(t *testing.T) {
	t.Parallel()
	if got, want := DidYouMean("cor", []string{"core"}), ` (did you mean "core"?)`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := DidYouMean("zzz", []string{"core"}); got != "" {
		t.Errorf("got %q, want nothing", got)
	}
}

func TestValue(t *testing.T) {
	t.Parallel()
	_, notNumber := strconv.ParseInt("abc", 0, 64)
	_, large := strconv.ParseUint("99999999999999999999", 0, 64)
	_, notBool := strconv.ParseBool("yes")
	_, duration := time.ParseDuration("soon")
	for want, err := range map[string]error{
		"want a number": notNumber, "the number is too large": large, "want true or false": notBool,
		"want a duration, such as 90s or 5m": fmt.Errorf("%w", duration), "EOF": io.EOF,
	} {
		if got := Value(err); got == nil || got.Error() != want {
			t.Errorf("%v: %v", err, got)
		}
	}
	if Value(nil) != nil {
		t.Error("of no error")
	}
}
