package claim

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/quick"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	t.Parallel()
	for text, c := range map[string]Claim{
		"/":            Exact("/"),
		"/a":           Exact("/a"),
		"/a/":          Exact("/a/"),
		"/**":          Prefix("/"),
		"/a/**":        Prefix("/a"),
		"/a//**":       Prefix("/a/"),
		"///**":        Prefix("//"),
		"/*":           Child("/"),
		"/a/*":         Child("/a"),
		"/a//*":        Child("/a/"),
		"/a/%2A":       {"/a/*", MatchExact},
		"/a/%2A%2A":    Exact("/a/**"),
		"/a/%2A/**":    {"/a/*", MatchPrefix},
		"/a/%2A/*":     {"/a/*", MatchChild},
		"/a/*/b":       Exact("/a/*/b"),
		"/*/b/":        Exact("/*/b/"),
		"/*/**":        Prefix("/*"),
		"/*//**":       Prefix("/*/"),
		"/a/*/b%20/**": Prefix("/a/*/b "),
		"/*/*":         Exact("/*/*"),
		"/*/a/*/*":     Child("/*/a/*"),
		"/*/%2Ab":      Exact("/*/*b"),
		"/%252A":       Exact("/%2A"),
		"/a%20b":       Exact("/a b"),
		"/%1B[2J%0A":   Exact("/\x1b[2J\n"),
		"/%C3%A9":      Exact("/é"),
		"/%FF/*":       Child("/\xff"),
	} {
		if got := c.String(); got != text {
			t.Errorf("%#v is %q, want %q", c, got, text)
		}
		if got, err := Parse(text); err != nil || got != c {
			t.Errorf("Parse(%q) = %#v, %v, want %#v", text, got, err, c)
		}
	}
	for text, want := range map[string]string{
		"":         "begins with /",
		"a":        "begins with /",
		"*":        "begins with /",
		"a/**":     "begins with /",
		"/a*":      "wildcards",
		"/a/***":   "wildcards",
		"/a*/*/b":  "wildcards",
		"/**/a":    "wildcards",
		"/*/%2A":   "the segment %2A",
		"/%2F/*/b": "the segment %2F",
		"/a/%2":    "invalid URL escape",
		"/%zz/**":  "invalid URL escape",
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
	for _, c := range []Claim{Exact(""), Prefix("a"), Child("*"), {Path: "/a"}, {Path: "/a", Match: MatchPattern}, {Path: "/a", Match: -1},
		{Path: "/a/*", Match: MatchPattern}, {Path: "/a", Match: MatchPattern | MatchPrefix}, {Path: "/*/a*", Match: 8 | MatchPrefix},
		{Path: "/a/*", Match: MatchPattern | MatchExact}, {Path: "/a*", Match: MatchPattern | MatchChild},
	} {
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
	quote := func(path string) string {
		segments := strings.Split(path, "/")
		for i, segment := range segments {
			if segments[i] = regexp.QuoteMeta(segment); segment == "*" && c.Match > MatchPattern {
				segments[i] = "[^/]+"
			}
		}
		return strings.Join(segments, "/")
	}
	base, match := quote(strings.TrimSuffix(c.Path, "/")), c.Match%MatchPattern
	pattern := map[Match]string{
		MatchExact:  quote(c.Path),
		MatchPrefix: base + "(/.*)?",
		MatchChild:  base + "/[^/]+/?",
	}[match]
	if match == MatchPrefix && strings.HasSuffix(c.Path, "/") {
		pattern = base + "/.*"
	}
	if match == MatchPrefix && c.Path == "/" {
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
	for _, base := range []string{"/", "//", "/a", "/a/", "/a/b", "/a.", "/*", "/*/b", "/*/", "/a/*", "/a/*/", "/*/*", "/a/*/*"} {
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

// randomClaim is valid. It is a pattern wherever that can be.
func randomClaim(path string, match uint8) Claim {
	return []func(string) Claim{Exact, Prefix, Child, literal}[match%4](path)
}

func literal(path string) Claim { return Claim{Path: path, Match: MatchPrefix} }

func TestRandomClaims(t *testing.T) {
	t.Parallel()
	covered := 0
	err := quick.Check(func(base, path uint16, match uint8) bool {
		c := randomClaim(randomPath(uint64(base%256)), match)
		checkText(t, c)
		if checkCovers(t, c, randomPath(uint64(path%256))) {
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
		if c := randomClaim("/"+path, match); c.Validate() == nil {
			checkText(t, c)
		}
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
		c := randomClaim("/"+base, match)
		if !utf8.ValidString(base) || !utf8.ValidString(path) || c.Validate() != nil {
			return // a regular expression does not take text that is not UTF-8 byte by byte
		}
		checkCovers(t, c, path)
	})
}

// A claim contains another if no path is covered by that one alone, and meets it if one is covered by both.
func TestContainsAndMeets(t *testing.T) {
	t.Parallel()
	paths := []string{""} // all of four segments at most, of which z is in no claim
	for range 4 {
		for _, path := range paths {
			for _, segment := range []string{"", "a", "b", "*", "z"} {
				if path += "/" + segment; !slices.Contains(paths, path) {
					paths = append(paths, path)
				}
				path = strings.TrimSuffix(path, "/"+segment)
			}
		}
	}
	var claims []Claim
	for _, path := range []string{"/", "//", "/a", "/a/", "/a//", "/a/b", "/*", "/*/", "/*/b", "/a/*", "/*/*", "/b/a"} {
		claims = append(claims, Exact(path), Prefix(path), Child(path), literal(path))
	}
	answers := map[string]int{}
	for _, c := range claims {
		for _, other := range claims {
			contains, meets := true, false
			for _, path := range paths {
				own, theirs := c.Covers(path), other.Covers(path)
				contains, meets = contains && (own || !theirs), meets || own && theirs
			}
			for what, both := range map[string][2]bool{"contains": {c.Contains(other), contains}, "meets": {c.Meets(other), meets}} {
				if both[0] != both[1] {
					t.Errorf("%s %s %s: %t, want %t", c, what, other, both[0], both[1])
				}
				answers[fmt.Sprint(what, both[0])]++
			}
		}
	}
	t.Log(len(paths), answers)
	invalid := Claim{Path: "a", Match: MatchPrefix}
	if c := Prefix("/"); c.Contains(invalid) || invalid.Contains(c) || c.Meets(invalid) || invalid.Meets(c) {
		t.Error("a claim that is not valid has paths")
	}
}
