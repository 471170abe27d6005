package percent

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]float64{"5%": 0.05, "0.5%": 0.005, "100%": 1, "1e1%": 0.1} {
		if got, err := Parse(text, 1); err != nil || got != want {
			t.Errorf("%s: %g, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "%", "5 %", "0%", "-1%", "101%", "NaN%", "Inf%"} {
		if _, err := Parse(text, 1); err == nil || !strings.Contains(err.Error(), "above 0 and up to 100, have") {
			t.Errorf("%q: %v", text, err)
		}
	}
	const want = `want N% with a number above 0 and up to 100, have "5" (did you mean "5%"?)`
	if _, err := Parse("5", 1); err == nil || err.Error() != want {
		t.Error(err)
	}
	if got, err := Parse("250%", 4); err != nil || got != 2.5 {
		t.Errorf("%g, %v", got, err)
	}
}

func TestFormat(t *testing.T) {
	for share, want := range map[float64]string{0: "0%", 0.05: "5%", 1: "100%", 1.0 / 3: "33.33%", -0.5: "-50%", -1e-9: "0%", 3: "300%"} {
		if got := Format(share); got != want {
			t.Errorf("%g: %s, want %s", share, got, want)
		}
	}
}
