package lockfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sum is a digest of that digit.
func sum(digit string) string { return strings.Repeat(digit, 64) }

func entry(stage, version, digit string, needs ...string) Entry {
	return Entry{Stage: stage, Platform: "linux/amd64", Version: version, SHA256: sum(digit), Needs: needs}
}

const text = `# Written by "catena lock": the files that Catena may execute as stages. Commit it, and review its changes.
apiVersion: catena.dev/v1alpha1
kind: Lock
stages:
  - stage: cache
    platform: linux/amd64
    version: v1.0.0
    sha256: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
    needs: [network, store]
  - stage: hello
    platform: linux/amd64
    version: (devel)
    sha256: bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb
    needs: []
`

func TestFormat(t *testing.T) {
	t.Parallel()
	l := New(entry("hello", "(devel)", "b"), entry("cache", "v1.0.0", "a", "store", "network", "store"))
	got, err := l.Format()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(text, string(got)); diff != "" {
		t.Error(diff)
	}
	back, err := Parse(got)
	if err != nil || Diff(l, back) != nil {
		t.Errorf("read back: %+v, %v", back, err)
	}
	if got := l.Digests("hello", "linux/amd64"); len(got) != 1 || got[0] != sum("b") {
		t.Errorf("digests are %q", got)
	}
	if got := l.Digests("hello", "linux/arm64"); got != nil {
		t.Errorf("digests on another platform are %q", got)
	}
}

func TestParseIsStrict(t *testing.T) {
	t.Parallel()
	head := "apiVersion: catena.dev/v1alpha1\nkind: Lock\n"
	one := func(lines string) string { return head + "stages:\n- " + lines }
	good := "stage: x\n  platform: p\n  version: v\n  sha256: " + sum("a") + "\n  needs: []\n"
	for text, want := range map[string]string{
		"": "want apiVersion catena.dev/v1alpha1 and kind Lock",
		"apiVersion: catena.dev/v2\nkind: Lock\n": "want apiVersion",
		"[]":                       "cannot unmarshal",
		"\x00":                     "control characters",
		head + "stage: []\n":       "field stage not found",
		head + "kind: Lock\n":      `"kind" already defined`,
		head + "---\nkind: Lock\n": "want one document",
		one(good) + "- " + good:    "two entries have the same",
		one(strings.Replace(good, "needs", "need", 1)):                 "field need not found",
		one(strings.Replace(good, sum("a"), sum("A"), 1)):              "want 64 hexadecimal digits",
		one(strings.Replace(good, sum("a"), "abc", 1)):                 "want 64 hexadecimal digits",
		one(strings.Replace(good, "stage: x", "stage: ''", 1)):         "stage or platform is missing",
		one(strings.Replace(good, "platform: p", `platform: ""`, 1)):   "stage or platform is missing",
		one(strings.Replace(good, "version: v", `version: "a\nb"`, 1)): "cannot be printed",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	if _, err := Parse([]byte(one(good))); err != nil {
		t.Error(err)
	}
	if _, err := Parse([]byte(`{"apiVersion": "catena.dev/v1alpha1", "kind": "Lock", "stages": []}`)); err != nil {
		t.Errorf("JSON: %v", err)
	}
}

// FuzzParse checks that what is read can be written and read again.
func FuzzParse(f *testing.F) {
	f.Add([]byte(text))
	f.Add([]byte(`{"apiVersion": "catena.dev/v1alpha1", "kind": "Lock", "stages": [{"stage": "x", "needs": ["\u2028"]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := Parse(data)
		if err != nil {
			return
		}
		formatted, err := l.Format()
		if err != nil {
			t.Fatal(err)
		}
		back, err := Parse(formatted)
		if err != nil {
			t.Fatalf("%v in\n%s", err, formatted)
		}
		if diff := Diff(l, back); diff != nil {
			t.Errorf("read back with changes: %+v", diff)
		}
		if again, err := back.Format(); err != nil || string(again) != string(formatted) {
			t.Errorf("is not stable: %v\n%s\n%s", err, formatted, again)
		}
	})
}

func TestDiff(t *testing.T) {
	t.Parallel()
	arm := entry("hello", "v1", "d")
	arm.Platform = "linux/arm64"
	from := New(entry("cache", "v1", "a"), entry("hello", "v1", "b"), entry("old", "v1", "c"), arm)
	for name, c := range map[string]struct {
		to   Lock
		want []string
	}{
		"nothing": {from, nil},
		"all":     {Lock{}, []string{"- cache v1 a", "- hello v1 b", "- hello v1 d", "- old v1 c"}},
		"changed": {New(entry("cache", "v1", "a"), entry("hello", "v2", "e"), entry("new", "v1", "f"), arm),
			[]string{"hello v1 b → v2 e", "+ new v1 f", "- old v1 c"}},
		"one more": {New(append(from.Entries, entry("hello", "v2", "e"))...), []string{"+ hello v2 e"}},
		"needs":    {New(append(from.Entries, entry("cache", "v1", "a", "store"))...), []string{"cache v1 a → v1 a"}},
	} {
		var got []string
		for _, c := range Diff(from, c.to) {
			switch {
			case c.Old == nil:
				got = append(got, fmt.Sprintf("+ %s %s %.1s", c.New.Stage, c.New.Version, c.New.SHA256))
			case c.New == nil:
				got = append(got, fmt.Sprintf("- %s %s %.1s", c.Old.Stage, c.Old.Version, c.Old.SHA256))
			default:
				got = append(got, fmt.Sprintf("%s %s %.1s → %s %.1s", c.Old.Stage, c.Old.Version, c.Old.SHA256, c.New.Version, c.New.SHA256))
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestReadAndWrite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), Name)
	if _, err := Read(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	want := New(entry("hello", "v1", "a", "store"))
	if err := want.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil || Diff(want, got) != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := New(entry("a\nb", "v1", "a")).Write(path); err == nil {
		t.Error("what cannot be read was written")
	}
	if got, err := Read(path); err != nil || Diff(want, got) != nil {
		t.Errorf("after a write that failed: %+v, %v", got, err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
	if err := os.Chmod(path, 0o646); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "run chmod o-w "+path) {
		t.Errorf("a file that all can change: %v", err)
	}
	if err := os.WriteFile(path, make([]byte, maxSize+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a large file: %v", err)
	}
}
