package cli

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/shadow"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/host/internal/support"
	"github.com/catena-dev/catena/host/internal/upgrade"
	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/claim"
)

// nasty forges a line, and has what terminals obey and what changes the order of text.
const nasty = "a\nforged\r\x1b[2J\u009b2J\x7f\u202eb\u2066\u2028forged\u2029forged\u0085forged\tz"

// envNasty makes the test binary a stage that describes itself with nasty texts.
const envNasty = "HOST_TEST_NASTY"

func nastyStage(name string) sdk.Stage {
	return sdk.Stage{
		Name: name, New: func(*sdk.Env) (http.Handler, error) { return nil, nil }, Version: "v1" + nasty, Summary: nasty, Needs: &sdk.Needs{Claims: []sdk.Claim{{Path: "/" + nasty}}},
		Kubernetes:   func() sdk.Kubernetes { return sdk.Kubernetes{Release: "v1.37.0" + nasty} },
		ConfigSchema: `{"type":"object","description":"` + "\u202e\u009b" + `","properties":{"b":{"type":"string"}}}`,
		Validate: func([]byte, []string) []sdk.ConfigProblem {
			return []sdk.ConfigProblem{{Key: "key" + nasty, Message: "is wrong" + nasty}}
		},
	}
}

// fill puts nasty texts into all that is in a value.
func fill(v reflect.Value, depth int) {
	if v.CanSet() && v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Now().Add(time.Hour)))
		return
	}
	if v.CanSet() && v.Type() == reflect.TypeFor[claim.Claim]() {
		v.Set(reflect.ValueOf(claim.Claim{Path: "/" + nasty}))
		return
	}
	if depth > 8 || !v.CanSet() {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(nasty)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(0)
	case reflect.Uint64:
		v.SetUint(3)
	case reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth+1)
		fill(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), depth+1)
		}
	}
}

// checkPrinted fails if a nasty text could do anything on a terminal.
func checkPrinted(t *testing.T, what, out string) {
	t.Helper()
	if !strings.Contains(out, "forged") {
		t.Errorf("%s: has no nasty text:\n%s", what, out)
	}
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		if i := strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%s: %q in %q", what, line[i:min(i+4, len(line))], line)
		}
		if strings.HasPrefix(line, "forged") {
			t.Errorf("%s: a line of its own: %q", what, line)
		}
	}
}

// nastyHost is a host all of whose texts are nasty.
type nastyHost struct{ impostor }

func (*nastyHost) Status() (s admin.Status) {
	fill(reflect.ValueOf(&s).Elem(), 0)
	return s
}

func (*nastyHost) Logs(_ context.Context, _ admin.LogRequest, send func(admin.LogChunk) error) error {
	return send(admin.LogChunk{Text: "x forged \x1b[2J\u202e\u2028\u009b\n"})
}

func (*nastyHost) LogLevels() (all []admin.LogLevel) {
	fill(reflect.ValueOf(&all).Elem(), 0)
	return all
}

func (*nastyHost) Explain(context.Context, admin.ExplainRequest) (*admin.Explanation, error) {
	e := &admin.Explanation{}
	fill(reflect.ValueOf(e).Elem(), 0)
	return e, nil
}

func (*nastyHost) Swap(context.Context, admin.SwapRequest) (*supervisor.Swapped, error) {
	s := &supervisor.Swapped{}
	fill(reflect.ValueOf(s).Elem(), 0)
	return s, nil
}

func (*nastyHost) Reload(context.Context) (*admin.Reload, error) {
	r := &admin.Reload{}
	fill(reflect.ValueOf(r).Elem(), 0)
	return r, nil
}

func (*nastyHost) Shadow(context.Context, admin.ShadowRequest) (*shadow.Summary, error) {
	return nil, errors.New(nasty)
}

// What comes from a stage or a client is printed by each command as text that does nothing.
func TestNastyTexts(t *testing.T) {
	t.Parallel()
	h, data := &nastyHost{}, t.TempDir()
	h.report, h.plan = &shadow.Report{}, &upgrade.Plan{}
	fill(reflect.ValueOf(h.report).Elem(), 0)
	fill(reflect.ValueOf(h.plan).Elem(), 0)
	runHost(t, h, data)
	for _, args := range []string{
		"status", "status -o json", "explain GET /", "explain GET / -o json", "upgrade plan core --binary /bin/true", "upgrade plan core --binary /bin/true -o json",
		"shadow report", "shadow report -o json", "shadow stop", "logs", "logs level", "logs level -o json", "swap core", "swap core -o json", "reload", "reload -o json",
	} {
		out, stderr, err := run(t, append(strings.Fields(args), "--data-dir", data)...)
		if code := exitCode(0); err != nil && !errors.As(err, &code) {
			t.Errorf("%s: %v", args, err)
		}
		checkPrinted(t, args, out+stderr)
	}
	checkPrinted(t, "error", printed(t, "shadow core --binary /bin/true", "--data-dir", data))
}

// What a binary says of itself, and the names of files, are printed as text that does nothing.
func TestNastyPlugins(t *testing.T) {
	t.Parallel()
	dir := pluginDir(t, "front")
	if err := os.WriteFile(filepath.Join(dir, "catena-stage-x"+strings.ReplaceAll(nasty, "/", "")), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "catena.yaml")
	text := "apiVersion: catena.dev/v1alpha1\nkind: HostConfiguration\npluginDirs: [" + dir + "]\nstages:\n" +
		"  front: {lock: off, env: {" + envNasty + ": front}, config: {b: \"\\u202E\\x9b\\eforged\"}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{
		"plugins", "plugins -o json", "config validate --with-stages", "config validate --with-stages -o json", "config show", "config show -o json",
		"chain", "lock front --check -o json", "lock front",
	} {
		if strings.HasPrefix(args, "lock") {
			if err := os.WriteFile(file, []byte(strings.Replace(text, "lock: off, ", "", 1)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out := printed(t, args, "--config", file)
		if args == "chain" || strings.Contains(args, "--check") {
			out += "(forged)" // it executes nothing
		}
		checkPrinted(t, args, out)
	}
	checkPrinted(t, "config schema", printed(t, "config schema front", "--config", file)+"(forged)")
}

// Names of files do not forge lines of what support writes.
func TestNastyFiles(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	name := filepath.Join(data, "x\n-rw------- 999 forged"+strings.ReplaceAll(nasty, "/", ""))
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := support.Files(data)(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	checkPrinted(t, "files.txt", b.String())
	if n := strings.Count(b.String(), "\n-rw"); n != 1 {
		t.Errorf("%d files:\n%s", n, b.String())
	}
}
