package apistage

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Column is a column of what kubectl get prints.
type Column[T Object] struct {
	// Name is the header.
	Name string
	// Value is a text, a number or a bool.
	Value func(T) any
	// Type is string if empty; integer, number, boolean and date are others.
	Type string
	// Wide columns are shown by kubectl get -o wide alone.
	Wide bool
	// Description is shown by no client of today.
	Description string
}

// Table returns the conversion of a kind's objects into a table with their names, the
// columns and their ages.
func Table[T Object](columns ...Column[T]) rest.TableConvertor { return table[T](columns) }

type table[T Object] []Column[T]

func (t table[T]) ConvertToTable(_ context.Context, object, options runtime.Object) (*metav1.Table, error) {
	result := &metav1.Table{}
	if o, ok := options.(*metav1.TableOptions); !ok || !o.NoHeaders {
		result.ColumnDefinitions = t.headers()
	}
	if list, err := meta.ListAccessor(object); err == nil {
		result.ResourceVersion, result.Continue = list.GetResourceVersion(), list.GetContinue()
		result.RemainingItemCount = list.GetRemainingItemCount()
		return result, meta.EachListItem(object, func(item runtime.Object) error { return t.addRow(result, item) })
	}
	if o, err := meta.CommonAccessor(object); err == nil {
		result.ResourceVersion = o.GetResourceVersion()
	}
	return result, t.addRow(result, object)
}

func (t table[T]) headers() []metav1.TableColumnDefinition {
	described := metav1.ObjectMeta{}.SwaggerDoc()
	headers := []metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name", Description: described["name"]}}
	for _, c := range t {
		header := metav1.TableColumnDefinition{Name: c.Name, Type: c.Type, Description: c.Description}
		if header.Type == "" {
			header.Type = "string"
		}
		if c.Wide {
			header.Priority = 1
		}
		headers = append(headers, header)
	}
	return append(headers, metav1.TableColumnDefinition{Name: "Age", Type: "string", Description: described["creationTimestamp"]})
}

func (t table[T]) addRow(to *metav1.Table, object runtime.Object) error {
	o, ok := object.(T)
	if !ok {
		return fmt.Errorf("%T in a table of %T", object, *new(T))
	}
	cells := []any{o.GetName()}
	for _, c := range t {
		cells = append(cells, c.Value(o))
	}
	age := "<unknown>"
	if at := o.GetCreationTimestamp(); !at.IsZero() {
		age = duration.HumanDuration(time.Since(at.Time))
	}
	to.Rows = append(to.Rows, metav1.TableRow{Cells: append(cells, age), Object: runtime.RawExtension{Object: object}})
	return nil
}
