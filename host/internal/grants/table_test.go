package grants

import (
	"path"
	"strings"
	"testing"
)

func TestIsNormal(t *testing.T) {
	t.Parallel()
	for _, normal := range []string{
		"", "/", "/a", "/a/", "/a/b", "/.well-known/x", "/a/...", "/a/.b", "/a/b.", "/a/..b/c", "/a;x/b", "/a/b;..", "*",
	} {
		if !isNormal(normal) {
			t.Errorf("%q is not normal", normal)
		}
	}
	for _, odd := range []string{
		"//", "/a//", "//a", "/a//b", "/.", "/..", "/./a", "/../a", "/a/.", "/a/..", "/a/../b", "/a/./b", "/a/..;/b", "/a/.;x=y",
		`/a\b`, `/a/..\b`, `\`,
	} {
		if isNormal(odd) {
			t.Errorf("%q is normal", odd)
		}
	}
}

// Whatever is normal is the same after it was cleaned.
func FuzzIsNormal(f *testing.F) {
	for _, s := range []string{"/a/b/", "/a/../b", "/a//b", `/\`, "/.;/x", "/..."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !strings.HasPrefix(s, "/") || !isNormal(s) {
			return
		}
		if clean := path.Clean(s); clean != s && clean+"/" != s {
			t.Errorf("%q is normal, but cleaned it is %q", s, clean)
		}
	})
}

// A path that some would take for another reaches only stages that claim it as a path of the
// Kubernetes API.
func TestTableOfOddPaths(t *testing.T) {
	t.Parallel()
	table := NewTable([]Stage{
		{Name: "hello", Claims: parse(t, "/hello/**", "/apis/example.com/**")},
		{Name: "middle", Claims: parse(t, "/api/**"), Grants: Grants{Claims: parse(t, "/api/**")}},
		{Name: "core", Claims: parse(t, "/**"), Grants: All()},
		{Name: "granted", Claims: parse(t, "/apis/example.com/**", "/hello/**"), Grants: Grants{Claims: parse(t, "/apis/**")}},
	})
	for at, want := range map[string][]int{
		"/hello/a": {0, 2, 3}, "/hello/../a": {2}, "/hello//a": {2}, "/hello/..;/a": {2}, `/hello/\a`: {2}, "/hello/": {0, 2, 3},
		"/apis/example.com/v1/namespaces/a/../b/notes": {2, 3}, "/api/v1/../x": {1, 2}, "/other": {2},
	} {
		var got []int
		for i := table.First(at); i >= 0; i = table.Next(at, i) {
			got = append(got, i)
		}
		if len(got) != len(want) || got[0] != want[0] {
			t.Errorf("%s: %v, want %v", at, got, want)
		}
	}
	if same := NewTable([]Stage{{Claims: parse(t, "/**"), Grants: All()}}); same.granted != nil {
		t.Error("there is a second table that is the same")
	}
}

func BenchmarkTable(b *testing.B) {
	t := NewTable([]Stage{{Claims: parse(&testing.T{}, "/hello/**")}, {Claims: parse(&testing.T{}, "/**"), Grants: All()}})
	for b.Loop() {
		t.First("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication")
	}
}
