// Package scaffold writes the repository of a new stage: program, test, Makefile,
// README, configuration and CI file. It uses the standard library and the go command only.
package scaffold

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"
)

// Kind is what the new stage is.
type Kind string

const (
	// Middleware is a net/http handler that serves some paths and passes the rest on.
	Middleware Kind = "middleware"
	// API is a Kubernetes-style API group.
	API Kind = "api"
)

// Kinds lists the kinds.
func Kinds() []string { return []string{string(Middleware), string(API)} }

// Options say what to write.
type Options struct {
	// Name of the stage.
	Name string
	Kind Kind
	// Worker: the group works in the background on its objects.
	Worker bool
	// Module is the path of the Go module; example.com/NAME if empty.
	Module string
	// Dir is the directory to create; NAME in the current one if empty.
	Dir string
	// SDK is the version of the SDK, or the directory of a clone of Catena; the latest if empty.
	SDK string
}

// Module of the SDK.
const sdkModule = "github.com/catena-dev/catena"

//go:embed templates
var templates embed.FS

// values are what the templates use.
type values struct {
	Name, Module string
	// Title is the name as a Go type: NoteBook for note-books.
	Title string
	// SDK is the SDK's module, SDKDir the clone to take it from, and SDKVersion its
	// version; each may be empty but the first.
	SDK, SDKDir, SDKVersion string
	// CheckVersion is what CI gets "catena stage check" from.
	CheckVersion string
	// Plural is what objects of the kind are called in paths.
	Plural      string
	API, Worker bool
}

var (
	validName    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,26}[a-z0-9])?$`)
	validModule  = regexp.MustCompile(`^[A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*$`)
	validVersion = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+[0-9A-Za-z.+-]*$`)
)

// kubernetes are the stages that are in the same chain as a new one.
var kubernetes = []string{"aggregator", "core", "extensions"}

// inEveryGroup are the kinds that API machinery adds to each version of a group.
var inEveryGroup = []string{"CreateOptions", "DeleteOptions", "GetOptions", "ListOptions", "PatchOptions", "UpdateOptions", "WatchEvent"}

func (o Options) values() (values, error) {
	v := values{
		Name: o.Name, Module: o.Module, Title: title(o.Name), SDK: sdkModule, CheckVersion: "latest",
		API: o.Kind == API, Worker: o.Worker,
	}
	if v.API {
		v.Title = title(singular(o.Name))
	}
	v.Plural = strings.ToLower(v.Title) + "s"
	if v.Module == "" {
		v.Module = "example.com/" + o.Name
	}
	switch {
	case !validName.MatchString(o.Name):
		return v, fmt.Errorf("name %q: a stage's name has 1 to 28 lower case letters, digits and inner dashes", o.Name)
	case o.Name == "host":
		return v, fmt.Errorf("name %q: is that of the host itself", o.Name)
	case slices.Contains(kubernetes, o.Name):
		return v, fmt.Errorf("name %q: is one of Kubernetes' own stages, which are in the same chain", o.Name)
	case v.API && slices.Contains(inEveryGroup, v.Title):
		return v, fmt.Errorf("name %q: every API group has a kind %s already", o.Name, v.Title)
	case o.Kind == API && o.Name[0] >= '0' && o.Name[0] <= '9':
		return v, fmt.Errorf("name %q: the name of an API group's kind begins with a letter", o.Name)
	case !slices.Contains(Kinds(), string(o.Kind)):
		return v, fmt.Errorf("kind %q: want %s", o.Kind, strings.Join(Kinds(), " or "))
	case v.Worker && !v.API:
		return v, errors.New("worker: it works on the objects of an API group: --kind api")
	case !validModule.MatchString(v.Module):
		return v, fmt.Errorf("module %q: is no path of a Go module", v.Module)
	case slices.Contains(strings.Split(v.Module, "/"), "vendor"):
		return v, fmt.Errorf("module %q: Go gives vendor in a path a meaning of its own; --module names another", v.Module)
	case o.SDK == "" || o.SDK == "latest":
		return v, nil
	case validVersion.MatchString(o.SDK):
		v.SDKVersion, v.CheckVersion = o.SDK, o.SDK
		return v, nil
	}
	return v, v.useClone(o.SDK)
}

// useClone takes the SDK from a directory.
func (v *values) useClone(dir string) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(abs, "go.mod"))
	if err != nil || !bytes.HasPrefix(text, []byte("module "+sdkModule+"\n")) {
		return fmt.Errorf("SDK %q: is neither a version, such as v0.1.0, nor a directory with a clone of %s", dir, sdkModule)
	}
	v.SDKDir = abs
	return nil
}

// title makes a Go type's name.
func title(name string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(name, "-") {
		if word != "" {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}

// singular takes the s off a name in the plural.
func singular(name string) string {
	if one, ok := strings.CutSuffix(name, "s"); ok && one != "" && !strings.HasSuffix(one, "s") && !strings.HasSuffix(one, "-") {
		return one
	}
	return name
}

// Create writes the repository, and has the go command find out which modules it needs. It
// returns the directory with the files in it, sorted. The directory must not exist, or be
// empty; after an error it is as it was.
func Create(ctx context.Context, o Options) (dir string, files []string, err error) {
	dir, files, undo, err := write(o)
	if err != nil {
		return "", nil, err
	}
	if err := resolve(ctx, dir); err != nil {
		return "", nil, errors.Join(err, undo())
	}
	return dir, files, nil
}

// write is Create without the modules. The function that it returns takes it back.
func write(o Options) (dir string, files []string, undo func() error, err error) {
	v, err := o.values()
	if err != nil {
		return "", nil, nil, err
	}
	dir = o.Dir
	if dir == "" {
		dir = o.Name
	}
	entries, err := os.ReadDir(dir)
	switch {
	case len(entries) > 0:
		return "", nil, nil, fmt.Errorf("directory %s: is not empty", dir)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", nil, nil, err
	}
	undo = undoOf(dir)
	sets := []string{"common", string(o.Kind)}
	if o.Worker {
		sets = append(sets, "worker")
	}
	for _, set := range sets {
		written, err := writeSet(dir, path.Join("templates", set), v)
		if err != nil {
			return "", nil, nil, errors.Join(err, undo())
		}
		files = append(files, written...)
	}
	slices.Sort(files)
	return dir, files, undo, nil
}

// undoOf returns a function that removes what will have been made in an empty directory: with it,
// and with those around it, if they do not exist yet.
func undoOf(dir string) func() error {
	missing := ""
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if _, err := os.Lstat(at); err == nil || at == filepath.Dir(at) {
			break
		}
		missing = at
	}
	return func() error {
		if missing != "" {
			return os.RemoveAll(missing)
		}
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
		return err
	}
}

// writeSet executes all templates of a directory. In their names, "dot-" stands for a dot
// and "+" for a slash.
func writeSet(dir, set string, v values) ([]string, error) {
	entries, err := templates.ReadDir(set)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".tmpl")
		name = strings.ReplaceAll(strings.ReplaceAll(name, "dot-", "."), "+", "/")
		t, err := template.ParseFS(templates, path.Join(set, e.Name()))
		if err != nil {
			return nil, err
		}
		var text bytes.Buffer
		if err := t.Execute(&text, v); err != nil {
			return nil, err
		}
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil {
			return nil, err
		}
		files = append(files, name)
	}
	return files, nil
}

// resolve lets the go command find out which versions of which modules the stage needs.
func resolve(ctx context.Context, dir string) error {
	cmd := exec.CommandContext(ctx, "go", "mod", "tidy")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return errors.New("the go command is not installed, which has to find the modules of the stage: install Go, then try again")
	}
	if err != nil {
		return fmt.Errorf("the modules of the stage cannot be found; --sdk DIR takes the SDK from a clone of Catena: go mod tidy: %w\n%s", err, bytes.TrimSpace(out))
	}
	return nil
}
