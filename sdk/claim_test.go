package sdk

import (
	"regexp"
	"strings"
	"testing"
	"testing/quick"
)

// coversSlowly is what Claim's documentation says, as a regular expression.
func coversSlowly(c Claim, path string) bool {
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

func TestClaimCovers(t *testing.T) {
	t.Parallel()
	paths := []string{"", "*", "/", "//", "/a", "/a/", "/a//", "/ab", "/a/b", "/a/b/", "/a/b/c", "/a/b//", "/b", "/A", "/a.b"}
	check := func(c Claim, path string) {
		if got, want := c.Covers(path), coversSlowly(c, path); got != want {
			t.Errorf("%s covers %q: %v, want %v", c, path, got, want)
		}
	}
	for _, base := range []string{"/", "/a", "/a/", "/a/b", "/a."} {
		for _, path := range paths {
			check(Exact(base), path)
			check(Prefix(base), path)
			check(Child(base), path)
		}
	}
	// Random paths over a small alphabet hit each other.
	random := func(bits uint64) string {
		path := "/"
		for ; bits != 0; bits >>= 2 {
			path += string("a/b/"[bits&3])
		}
		return path
	}
	err := quick.Check(func(base, path uint16, match uint8) bool {
		check(Claim{Path: random(uint64(base % 1024)), Match: MatchExact + Match(match%3)}, random(uint64(path%4096)))
		return !t.Failed()
	}, &quick.Config{MaxCount: 5000})
	if err != nil {
		t.Error(err)
	}
}

func TestClaimString(t *testing.T) {
	t.Parallel()
	for claim, want := range map[Claim]string{
		Exact("/a"): "/a", Exact("/a/"): "/a/", Prefix("/a"): "/a/**", Prefix("/"): "/**", Child("/a"): "/a/*",
	} {
		if got := claim.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
