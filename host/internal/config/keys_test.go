package config

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// structKeys lists the dotted keys that Config has fields for.
func structKeys(t reflect.Type, path string) []string {
	switch {
	case t == reflect.TypeFor[map[string]any](), t.Kind() == reflect.Slice, t.Kind() == reflect.Int64, t.Kind() == reflect.String, t.Kind() == reflect.Bool:
		return []string{path}
	case t.Kind() == reflect.Map:
		return structKeys(t.Elem(), path+".*")
	}
	var keys []string
	for i := range t.NumField() {
		f := t.Field(i)
		if tag := f.Tag.Get("koanf"); tag != "-" && f.IsExported() {
			keys = append(keys, structKeys(f.Type, strings.TrimPrefix(path+"."+tag, "."))...)
		}
	}
	return keys
}

func TestKeysAreTheFieldsOfConfig(t *testing.T) {
	t.Parallel()
	var keys []string
	for _, k := range Keys() {
		keys = append(keys, k.Path)
	}
	fields := structKeys(reflect.TypeFor[Config](), "")
	slices.Sort(keys)
	slices.Sort(fields)
	if diff := cmp.Diff(fields, keys); diff != "" {
		t.Errorf("fields of Config and Keys differ (-fields +keys):\n%s", diff)
	}
}

func TestDefaultsAreValid(t *testing.T) {
	t.Parallel()
	for _, k := range Keys() {
		if k.Default == nil {
			continue
		}
		want := map[Type]any{String: "", List: []string{}, Integer: int64(0), Bool: false, Duration: time.Duration(0)}[k.Type]
		if reflect.TypeOf(k.Default) != reflect.TypeOf(want) {
			t.Errorf("%s: default is a %T, want %T", k.Path, k.Default, want)
		}
		if k.check != nil {
			if err := k.check(k.Default); err != nil {
				t.Errorf("%s: default: %v", k.Path, err)
			}
		}
	}
}

// A variable's name must not be readable in two ways: as two keys of one stage, or
// as keys of two stages of which the name of one begins with that of the other.
func TestEnvironmentIsUnambiguous(t *testing.T) {
	t.Parallel()
	var suffixes []string
	seen := map[string]string{}
	for _, k := range Keys() {
		if rest, ok := strings.CutPrefix(k.Path, "stages.*."); ok {
			suffixes = append(suffixes, strings.TrimPrefix(envVar(strings.Split(rest, ".")), envPrefix))
		}
		name := envVar(strings.Split(k.Path, "."))
		if other, twice := seen[name]; twice {
			t.Errorf("%s is %s and %s", name, other, k.Path)
		}
		seen[name] = k.Path
		if strings.HasPrefix(name, stagePrefix) {
			t.Errorf("%s, for %s, belongs to the stage protocol", name, k.Path)
		}
	}
	for _, a := range suffixes {
		for _, b := range suffixes {
			if strings.HasSuffix(a, "_"+b) {
				t.Errorf("…_%s could be the key %s of a stage with a longer name", a, b)
			}
		}
	}
}

func TestDottedKeys(t *testing.T) {
	t.Parallel()
	for _, path := range [][]string{{"a"}, {"a", "b"}, {"a.b", "c"}, {`a\`, "b"}, {"a", `.\.`, "c"}, {"", "a", ""}} {
		if got := undotted(dotted(path)); !slices.Equal(got, path) {
			t.Errorf("%q becomes %s and then %q", path, dotted(path), got)
		}
	}
}

// The documentation has a table that is made of Keys; -update writes it.
func TestDocumentationIsGenerated(t *testing.T) {
	t.Parallel()
	checkGenerated(t, "../../../docs/config.md", "<!-- keys: generated -->\n", "<!-- end -->\n", markdownTable())
}

func checkGenerated(t *testing.T, file, from, to, want string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(data), from)
	got, after, ok2 := strings.Cut(rest, to)
	if !ok1 || !ok2 {
		t.Fatalf("%s lacks the marks %q and %q", file, from, to)
	}
	if got == want {
		return
	}
	if !*update {
		t.Errorf("%s: keys are out of date; run go test -update (-want +got):\n%s", file, cmp.Diff(want, got))
	} else if err := os.WriteFile(file, []byte(before+from+want+to+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func typeText(k Key) string {
	if len(k.Choices) > 0 {
		return strings.Join(k.Choices, ", ")
	}
	return string(k.Type)
}

func defaultText(k Key) string {
	switch {
	case k.DefaultDoc != "":
		return k.DefaultDoc
	case k.Default == nil || k.Default == "":
		return ""
	}
	if d, ok := k.Default.(time.Duration); ok {
		return "`" + shortDuration(d) + "`"
	}
	return "`" + Setting{Value: k.Default}.Text() + "`"
}

func markdownTable() string {
	var out strings.Builder
	out.WriteString("| key | value | default | what it is for |\n|---|---|---|---|\n")
	for _, k := range Keys() {
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", strings.ReplaceAll(k.Path, "*", "NAME"), typeText(k), defaultText(k), k.Doc)
	}
	return out.String()
}
