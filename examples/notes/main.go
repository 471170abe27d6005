// Stage notes serves an API group whose objects are in an SQLite database.
package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/catena-dev/catena/examples/notes/v1"
	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/apistage"
)

func main() { sdk.Main(group().Stage()) }

func group() apistage.Group {
	return apistage.Group{
		Name:        "notes",
		Summary:     "serves notes from SQLite",
		APIVersion:  "notes.example.com/v1",
		TypeSources: []string{v1.Source},
		Resources: []apistage.Resource{apistage.Kind[*v1.Note]{
			List: &v1.NoteList{},
			Default: func(n *v1.Note) {
				if n.Spec.Title == "" {
					n.Spec.Title, _, _ = strings.Cut(n.Spec.Text, "\n")
				}
			},
			Validate: func(_ context.Context, n, _ *v1.Note) field.ErrorList {
				if n.Spec.Text == "" {
					return field.ErrorList{field.Required(field.NewPath("spec", "text"), "a note says something")}
				}
				return nil
			},
			Columns:      []apistage.Column[*v1.Note]{{Name: "Title", Value: func(n *v1.Note) any { return n.Spec.Title }}},
			Fields:       map[string]func(*v1.Note) string{"spec.title": func(n *v1.Note) string { return n.Spec.Title }},
			Subresources: map[string]apistage.Subresource{"text": apistage.Connect(text, http.MethodGet)},
			Storage: func(setup *apistage.Setup, strategy apistage.Strategy) (rest.StandardStorage, error) {
				return openStorage(setup.Env, strategy)
			},
		}},
	}
}

// text serves the text of a note alone.
func text(call apistage.Call[*v1.Note], w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, call.Object.Spec.Text)
}
