package suggest

import (
	"strings"
	"testing"
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
