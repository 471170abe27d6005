package schemas

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"
)

// Docs are the comments of types and fields. The keys are TYPE and TYPE.FIELD, with
// Go's names and without packages.
type Docs map[string]doc

type doc struct {
	text    string
	markers markers
}

// markers are the lines of a comment that begin with +, such as +listType=map.
type markers map[string][]string

func (m markers) get(name string) string {
	if values := m[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// ParseDocs reads the comments of Go source files.
func ParseDocs(sources ...string) (Docs, error) {
	docs := Docs{}
	for i, source := range sources {
		file, err := parser.ParseFile(token.NewFileSet(), fmt.Sprintf("source %d", i+1), source,
			parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("source of types: %w", err)
		}
		for _, declaration := range file.Decls {
			if general, ok := declaration.(*ast.GenDecl); ok && general.Tok == token.TYPE {
				docs.addTypes(general)
			}
		}
	}
	return docs, nil
}

func (d Docs) addTypes(declaration *ast.GenDecl) {
	for _, s := range declaration.Specs {
		t := s.(*ast.TypeSpec)
		comment := t.Doc
		if comment == nil && !declaration.Lparen.IsValid() {
			comment = declaration.Doc
		}
		d[t.Name.Name] = parseDoc(comment)
		fields, ok := t.Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, f := range fields.Fields.List {
			for _, name := range f.Names {
				d[t.Name.Name+"."+name.Name] = parseDoc(f.Doc)
			}
		}
	}
}

// parseDoc does with a comment what openapi-gen does with it.
func parseDoc(comment *ast.CommentGroup) doc {
	parsed := doc{markers: markers{}}
	if comment == nil {
		return parsed
	}
	var paragraphs []string
	var paragraph []string
	for line := range strings.Lines(comment.Text() + "\n") {
		line = strings.TrimSpace(line)
		marker, isMarker := strings.CutPrefix(line, "+")
		switch {
		case isMarker:
			name, value, _ := strings.Cut(marker, "=")
			parsed.markers[name] = append(parsed.markers[name], value)
		case strings.HasPrefix(line, "TODO"):
		case line != "":
			paragraph = append(paragraph, line)
		case len(paragraph) > 0:
			paragraphs = append(paragraphs, strings.Join(paragraph, " "))
			paragraph = nil
		}
		if line == "---" {
			break
		}
	}
	if len(paragraph) > 0 {
		paragraphs = append(paragraphs, strings.Join(paragraph, " "))
	}
	parsed.text = strings.Join(paragraphs, "\n\n")
	return parsed
}

// documented has the comments of a type of Kubernetes, by the fields' names in JSON;
// that of the type itself is at "".
type documented interface{ SwaggerDoc() map[string]string }

func (d Docs) ofType(t reflect.Type) doc {
	if swagger, ok := reflect.New(t).Interface().(documented); ok {
		return doc{text: swagger.SwaggerDoc()[""]}
	}
	return d[t.Name()]
}

func (d Docs) ofField(t reflect.Type, f reflect.StructField, name string) doc {
	if swagger, ok := reflect.New(t).Interface().(documented); ok {
		return doc{text: swagger.SwaggerDoc()[name]}
	}
	return d[t.Name()+"."+f.Name]
}
