package documents

import (
	"reflect"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	t.Parallel()
	text := strings.ReplaceAll(`# Title
~~~console
$ not this
~~~
## One
~~~yaml
$ nor: this
~~~
~~~console
$ first   # with a remark
out

more
$ cat > f <<'END'
# no heading
END
~~~
### Below
~~~console other
$ second
~~~
~~~console other
later
~~~
~~~console elsewhere
$ not this
~~~
## Two
~~~console
$ nor this
~~~
`, "~~~", "```")
	got, err := read(strings.NewReader(text), "One", "Two")
	want := []step{
		{line: 10, command: "first   # with a remark", output: []string{"out", "", "more"}},
		{line: 14, command: "cat > f <<'END'\n# no heading\nEND"},
		{line: 20, terminal: "other", command: "second"},
		{line: 22, terminal: "other", output: []string{"later"}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, headings := range [][2]string{{"Three", ""}, {"One", "Three"}} {
		if got, err := read(strings.NewReader(text), headings[0], headings[1]); err == nil {
			t.Errorf("%q: %+v", headings, got)
		}
	}
}

func TestDiffers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ want, got, difference string }{
		{"a b", "a   b", ""},
		{"took 3s", "took 14.2ms", ""},
		{"first 0/1 -", "first 1/1 12s", ""},
		{"a6aac204 → cc2cb6df,", "deadbeef → facadeed,", ""},
		{"took 3s", "took long", "not printed: took 3s"},
		{"a b", "a b c", "not printed: a b"},
		{"a b …", "a b c", ""},
		{"a be…", "a better", ""},
		{"a", "a\nb", "not in the document: b"},
		{"a\n…", "a\nb", ""},
		{"…\nb", "a\na\nb", ""},
		{"…\nb", "a\na\nb\nc", "not printed: b"},
		{"…\nb 1\nc", "a\nb 1\nb 2\nc", ""},
		{"…\nc", "a\nb", "not printed: c"},
	} {
		if got := differs(strings.Split(c.want, "\n"), strings.Split(c.got, "\n")); got != c.difference {
			t.Errorf("%q against %q: %q, want %q", c.want, c.got, got, c.difference)
		}
	}
	if got := lacks([]string{"b 1", "…", "a"}, []string{"a", "x", "b 2"}); got != "" {
		t.Errorf("in another order: %q", got)
	}
	if got := lacks([]string{"b", "c"}, []string{"a", "b"}); got != "not printed: c" {
		t.Errorf("%q", got)
	}
}
