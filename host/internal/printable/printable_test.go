package printable

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestLine(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                        "",
		"a b ü 日本":                "a b ü 日本",
		"a\tb":                    "a    b",
		"a\nb\r":                  `a\nb\r`,
		"\x1b[2J\u009b2J\x7f":     `\x1b[2J\u009b2J\x7f`,
		"a\u202eb\u2066\u200f":    `a\u202eb\u2066\u200f`,
		"a\u2028b\u2029\u0085c":   `a\u2028b\u2029\u0085c`,
		"\ufeffa\u00ad\U000e0041": `\ufeffa\u00ad\U000e0041`,
		"\x9b2J":                  "\ufffd2J",
		`it's "so" \n`:            `it's "so" \n`,
	} {
		if got := Line(in); got != want || Is(in) != (in == want) {
			t.Errorf("%q: %q, want %q; is printable: %t", in, got, want, Is(in))
		}
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a\n":              "a",
		"a\r\nb\n\tc":      "a\n    b\n    c",
		"a\n\n      b\x1b": "a\n    \n      b\\x1b",
	} {
		if got := Lines(in); got != want || Lines(got) != want {
			t.Errorf("%q: %q, want %q; again %q", in, got, want, Lines(got))
		}
	}
	if got := Text("a\nb\x1b\n\tc"); got != "a\nb\\x1b\n\tc" {
		t.Errorf("%q", got)
	}
}

type name string

type spoken struct{}

func (spoken) String() string { return "a\nb" }

func TestFprintf(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	Fprintf(&b, "%s %q %d %v %v %v %.2s %s\n", "a\n", "b\x1b", 7, name("c\u202e"), errors.New("d\ne\x1b"), spoken{}, "fgh", Safe("\x1b[0m"))
	Fprintln(&b, "x\ny", nil, 1.5)
	want := `a\n "b\\x1b" 7 c\u202e d` + "\n" + `    e\x1b a\nb fg ` + "\x1b[0m\n" + `x\ny <nil> 1.5` + "\n"
	if b.String() != want {
		t.Errorf("got\n%q, want\n%q", b.String(), want)
	}
}

// items are errors of which each is a line of the program's own.
type items []error

func (i items) Error() string            { return errors.Join(i...).Error() }
func (i items) Items() (string, []error) { return "two:", i }

func TestItemsBeginLines(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	Fprintf(&b, "%v\n", errors.Join(items{errors.New("a.yaml:1: wrong\nforged"), errors.New("b.yaml:2: wrong\x1b")}))
	if want := "two:\na.yaml:1: wrong\n    forged\nb.yaml:2: wrong\\x1b\n"; b.String() != want {
		t.Errorf("got\n%q, want\n%q", b.String(), want)
	}
}

// FuzzPrintable checks what the package promises, and that JSON means what it did.
func FuzzPrintable(f *testing.F) {
	f.Add("a\nb\x1b[2J\u202e\u2028\u009b\x7f\t\xff\U000e0041")
	f.Fuzz(func(t *testing.T, s string) {
		line := Line(s)
		if !Is(line) || Line(line) != line {
			t.Errorf("%q: %q", s, line)
		}
		for i, l := range strings.Split(Lines(s), "\n") {
			if !Is(l) || i > 0 && !strings.HasPrefix(l, indent) {
				t.Errorf("%q: line %q", s, l)
			}
		}
		encoded, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var before, after string
		out := JSON(encoded)
		if err := errors.Join(json.Unmarshal(encoded, &before), json.Unmarshal(out, &after)); err != nil || before != after {
			t.Errorf("%q means %q, %v, want %q", out, after, err, before)
		}
		if !utf8.Valid(out) || strings.ContainsFunc(string(out), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q", out)
		}
	})
}
