package claim

import (
	"regexp"
	"strings"
	"testing"
	"testing/quick"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	t.Parallel()
	for text, c := range map[string]Claim{
		"/":          Exact("/"),
		"/a":         Exact("/a"),
		"/a/":        Exact("/a/"),
		"/**":        Prefix("/"),
		"/a/**":      Prefix("/a"),
		"/a//**":     Prefix("/a/"),
		"///**":      Prefix("//"),
		"/*":         Child("/"),
		"/a/*":       Child("/a"),
		"/a//*":      Child("/a/"),
		"/a/%2A":     Exact("/a/*"),
		"/a/%2A%2A":  Exact("/a/**"),
		"/a/%2A/**":  Prefix("/a/*"),
		"/%252A":     Exact("/%2A"),
		"/a%20b":     Exact("/a b"),
		"/%1B[2J%0A": Exact("/\x1b[2J\n"),
		"/%C3%A9":    Exact("/é"),
		"/%FF/*":     Child("/\xff"),
	} {
		if got := c.String(); got != text {
			t.Errorf("%#v is %q, want %q", c, got, text)
		}
		if got, err := Parse(text); err != nil || got != c {
			t.Errorf("Parse(%q) = %#v, %v, want %#v", text, got, err, c)
		}
	}
	for text, want := range map[string]string{
		"":        "begins with /",
		"a":       "begins with /",
		"*":       "wildcards",
		"a/**":    "begins with /",
		"/a*":     "wildcards",
		"/a/***":  "wildcards",
		"/a/*/b":  "wildcards",
		"/*/**":   "wildcards",
		"/a/%2":   "invalid URL escape",
		"/%zz/**": "invalid URL escape",
	} {
		if got, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %#v, %v, want %q", text, got, err, want)
		}
	}
}

func TestTexts(t *testing.T) {
	t.Parallel()
	if got := strings.Join(Texts([]Claim{Exact("/a"), Prefix("/b")}), " "); got != "/a /b/**" {
		t.Errorf("%q", got)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, c := range []Claim{Exact(""), Prefix("a"), Child("*"), {Path: "/a"}, {Path: "/a", Match: MatchChild + 1}, {Path: "/a", Match: -1}} {
		if err := c.Validate(); err == nil {
			t.Errorf("%#v is valid", c)
		}
		for _, path := range []string{"", "/", c.Path, c.Path + "/a"} {
			if c.Covers(path) {
				t.Errorf("%#v, which is not valid, covers %q", c, path)
			}
		}
	}
}

// The text form of each valid claim is read back as that claim, prints, and has no spaces:
// lists of claims are separated by them.
func checkText(t *testing.T, c Claim) {
	t.Helper()
	text := c.String()
	if got, err := Parse(text); err != nil || got != c {
		t.Errorf("%#v is %q, which is read as %#v, %v", c, text, got, err)
	}
	if !regexp.MustCompile(`^[!-~]+$`).MatchString(text) {
		t.Errorf("%#v is %q", c, text)
	}
}

// coversByPattern is the second implementation: the words of stage.proto as a regular
// expression.
func coversByPattern(c Claim, path string) bool {
	base := regexp.QuoteMeta(strings.TrimSuffix(c.Path, "/"))
	pattern := map[Match]string{
		MatchExact:  regexp.QuoteMeta(c.Path),
		MatchPrefix: base + "(/.*)?",
		MatchChild:  base + "/[^/]+/?",
	}[c.Match]
	if c.Match == MatchPrefix && strings.HasSuffix(c.Path, "/") {
		pattern = base + "/.*"
	}
	if c.Match == MatchPrefix && c.Path == "/" {
		pattern = ".*"
	}
	return regexp.MustCompile("^(?s:" + pattern + ")$").MatchString(path)
}

func checkCovers(t *testing.T, c Claim, path string) (covers bool) {
	t.Helper()
	got, want := c.Covers(path), coversByPattern(c, path)
	if got != want {
		t.Errorf("%s covers %q: %v, want %v", c, path, got, want)
	}
	return want
}

func TestCovers(t *testing.T) {
	t.Parallel()
	paths := []string{"", "*", "/", "//", "/a", "/a/", "/a//", "/ab", "/a/b", "/a/b/", "/a/b/c", "/a/b//", "/b", "/A", "/a.b"}
	for _, base := range []string{"/", "//", "/a", "/a/", "/a/b", "/a."} {
		for _, path := range paths {
			checkCovers(t, Exact(base), path)
			checkCovers(t, Prefix(base), path)
			checkCovers(t, Child(base), path)
		}
	}
}

// randomPath has few letters, so that claims and paths meet.
func randomPath(bits uint64) string {
	path := "/"
	for ; bits != 0; bits >>= 2 {
		path += string("a/*%"[bits&3])
	}
	return path
}

func TestRandomClaims(t *testing.T) {
	t.Parallel()
	covered := 0
	err := quick.Check(func(base, path uint16, match uint8) bool {
		c := Claim{Path: randomPath(uint64(base % 64)), Match: MatchExact + Match(match%3)}
		checkText(t, c)
		if checkCovers(t, c, randomPath(uint64(path%1024))) {
			covered++
		}
		return !t.Failed()
	}, &quick.Config{MaxCount: 20000})
	if err != nil {
		t.Error(err)
	}
	if covered < 100 {
		t.Errorf("only %d of 20000 claims cover their path: the cases do not test both sides", covered)
	}
}

func FuzzText(f *testing.F) {
	f.Add("/a/*", uint8(0))
	f.Add("/%2A", uint8(1))
	f.Add("/\xff\n", uint8(2))
	f.Fuzz(func(t *testing.T, path string, match uint8) {
		checkText(t, Claim{Path: "/" + path, Match: MatchExact + Match(match%3)})
	})
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"/", "/**", "//**", "/a/*", "/a/%2a", "/é", "a"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := Parse(text); err == nil {
			checkText(t, c)
		}
	})
}

func FuzzCovers(f *testing.F) {
	f.Add("/a", uint8(1), "/a/b")
	f.Add("/", uint8(2), "//")
	f.Fuzz(func(t *testing.T, base string, match uint8, path string) {
		c := Claim{Path: "/" + base, Match: MatchExact + Match(match%3)}
		if !utf8.ValidString(base) || !utf8.ValidString(path) {
			return // a regular expression does not take such text byte by byte
		}
		checkCovers(t, c, path)
	})
}

// A claim contains another if no path is covered by that one alone.
func TestContains(t *testing.T) {
	t.Parallel()
	paths := []string{"/", "/a", "/a/", "/a/b", "/a/b/", "/a/b/c", "/ab", "/b", "/a//", "/x/y"}
	var claims []Claim
	for _, path := range []string{"/", "/a", "/a/", "/a/b", "/ab"} {
		claims = append(claims, Exact(path), Prefix(path), Child(path))
	}
	for _, c := range claims {
		for _, other := range claims {
			want := true
			for _, path := range paths {
				want = want && (c.Covers(path) || !other.Covers(path))
			}
			// Every claim covers a path of the list, so that want is exact where it is false.
			if got := c.Contains(other); got && !want {
				t.Errorf("%v does not contain %v", c, other)
			} else if !got && want && c == other {
				t.Errorf("%v does not contain itself", c)
			}
		}
	}
	for _, tc := range []struct{ claim, other string }{
		{"/**", "/"}, {"/**", "/**"}, {"/**", "/*"}, {"/a/**", "/a"}, {"/a/**", "/a/*"}, {"/a/**", "/a/b/**"}, {"/a/*", "/a/b"}, {"/a/*", "/a/b/"},
	} {
		c, err := Parse(tc.claim)
		other, otherErr := Parse(tc.other)
		if err != nil || otherErr != nil || !c.Contains(other) {
			t.Errorf("%s does not contain %s", tc.claim, tc.other)
		}
	}
}
