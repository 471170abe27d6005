package admin

import (
	"bytes"
	"encoding"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write docs/status.md anew")

const (
	root   = "../../.."
	module = "github.com/catena-dev/catena/"
	page   = root + "/docs/status.md"
)

const head = `# The status of a host

<!-- Made from the comments in the sources: go test ./host/internal/admin -run StatusIsDocumented -update -->

` + "`catena status -o json`" + ` prints this object; ` + "`/debug/catena/status`" + ` responds with it to users who may get that path, and
the page at ` + "`/debug/catena/`" + ` shows it. Times are in RFC 3339. Fields may be added; those that are here keep their meaning within v1alpha1. A
name with ` + "`[]`" + ` is a list, one with ` + "`{}`" + ` has a field for each stage or name; "optional" fields are absent if they do not apply.

`

// The page has each field of a status, in the words of its comment.
func TestStatusIsDocumented(t *testing.T) {
	t.Parallel()
	d := &fieldDocs{t: t, types: map[string]map[string]string{}, first: map[reflect.Type]string{}}
	d.out.WriteString(head)
	d.describe("", reflect.TypeFor[Status]())
	if before, err := os.ReadFile(page); err == nil { // package server has the kinds of events
		if i := bytes.Index(before, []byte("## Kinds of events\n")); i >= 0 {
			d.out.WriteByte('\n')
			d.out.Write(before[i:])
		}
	}
	if *update {
		if err := os.WriteFile(page, d.out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, d.out.Bytes()) {
		t.Errorf("%s is not what the comments say: go test ./host/internal/admin -run StatusIsDocumented -update", page)
	}
}

// fieldDocs describes types by the comments of their fields.
type fieldDocs struct {
	t   *testing.T
	out bytes.Buffer
	// types has the comments of fields by package and type.
	types map[string]map[string]string
	// first is where a type has been described.
	first map[reflect.Type]string
}

func (d *fieldDocs) describe(prefix string, typ reflect.Type) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		inner := f.Type
		if f.Anonymous && name == "" {
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			d.describe(prefix, inner)
			continue
		}
		path := prefix + name
		for nested := true; nested; {
			switch inner.Kind() {
			case reflect.Pointer:
			case reflect.Slice:
				path += "[]"
			case reflect.Map:
				path += "{}"
			default:
				nested = false
				continue
			}
			inner = inner.Elem()
		}
		kind := kindOf(inner)
		if strings.Contains(options, "omit") {
			kind += ", optional"
		}
		comment, first := d.comment(typ, f.Name), d.first[inner]
		if first != "" {
			comment += " Its fields are those of `" + first + "`."
		}
		if comment = strings.TrimSpace(comment); comment != "" {
			comment = ": " + comment
		}
		fmt.Fprintf(&d.out, "- `%s` (%s)%s\n", path, kind, comment)
		if kindOf(inner) == "object" && first == "" {
			d.first[inner] = path
			d.describe(path+".", inner)
		}
	}
}

func kindOf(typ reflect.Type) string {
	switch {
	case typ == reflect.TypeFor[time.Time]():
		return "time"
	case typ.Implements(reflect.TypeFor[encoding.TextMarshaler]()) || typ.Kind() == reflect.String:
		return "string"
	case typ == reflect.TypeFor[time.Duration]():
		return "nanoseconds"
	case typ.Kind() == reflect.Struct:
		return "object"
	case typ.Kind() == reflect.Bool:
		return "boolean"
	}
	return "number"
}

// comment is that of a field, in one line; empty if its name says it all.
func (d *fieldDocs) comment(typ reflect.Type, field string) string {
	key := typ.PkgPath() + "." + typ.Name()
	if d.types[key] == nil {
		d.read(typ.PkgPath())
	}
	text := strings.Join(strings.Fields(d.types[key][field]), " ")
	return strings.ReplaceAll(strings.ReplaceAll(text, "|", "\\|"), "<", "&lt;")
}

func (d *fieldDocs) read(pkg string) {
	files, err := filepath.Glob(filepath.Join(root, strings.TrimPrefix(pkg, module), "*.go"))
	if err != nil {
		d.t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			d.t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				fields := map[string]string{}
				for _, f := range s.Fields.List {
					for _, name := range f.Names {
						fields[name.Name] = f.Doc.Text()
					}
				}
				d.types[pkg+"."+spec.Name.Name] = fields
			}
			return true
		})
	}
}
