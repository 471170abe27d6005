package process

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestDigests shows that a file with two names is read once, and others for themselves.
func TestDigests(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a, other, link := write("a", "one"), write("other", "two"), filepath.Join(dir, "link")
	if err := os.Link(a, link); err != nil {
		t.Fatal(err)
	}
	var d Digests
	want, err := Digest(a)
	if got, err2 := d.Of(a); err != nil || err2 != nil || got != want {
		t.Fatalf("%q, %v; want %q, %v", got, err2, want, err)
	}
	write("a", "changed")
	if got, err := d.Of(link); err != nil || got != want {
		t.Errorf("the other name: %q, %v: it was read again", got, err)
	}
	if got, err := d.Of(other); err != nil || got == want {
		t.Errorf("another file: %q, %v", got, err)
	}
	if _, err := d.Of(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
