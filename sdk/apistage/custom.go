package apistage

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Custom is a resource with storage of the author's own, behind the interfaces of
// k8s.io/apiserver/pkg/registry/rest. What the storage implements decides about the
// verbs that the resource has.
type Custom struct {
	// Object and List are empty ones: &notes.Note{}, &notes.NoteList{}.
	Object, List runtime.Object
	// Plural is the name in paths.
	Plural string
	// Storage makes the storage, and Subresources those of subresources by their names.
	Storage      func(*Setup) (rest.Storage, error)
	Subresources map[string]func(*Setup) (rest.Storage, error)
}

func (c Custom) register(scheme *groupScheme) error {
	if c.Object == nil || c.List == nil || c.Plural == "" || c.Storage == nil {
		return errors.New("Custom needs Object, List, Plural and Storage")
	}
	return scheme.addHub(c.Object, c.List)
}

func (c Custom) usesStore() bool { return false }

func (c Custom) storage(setup *Setup) (map[string]rest.Storage, error) {
	main, err := c.Storage(setup)
	if err != nil {
		return nil, fmt.Errorf("resource %q: %w", c.Plural, err)
	}
	storages := map[string]rest.Storage{c.Plural: main}
	for name, make := range c.Subresources {
		if storages[c.Plural+"/"+name], err = make(setup); err != nil {
			return nil, fmt.Errorf("resource %q: %w", c.Plural+"/"+name, err)
		}
	}
	return storages, nil
}
