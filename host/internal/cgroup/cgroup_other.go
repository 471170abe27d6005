//go:build !linux

package cgroup

import "os"

// Tree has no groups on this system.
type Tree struct{}

// Name returns an error on this system.
func Name(string) (string, error) { return "", ErrUnsupported }

// Clean does nothing on this system.
func Clean(string) error { return nil }

// Open returns a Tree without groups.
func Open(string) *Tree { return nil }

// Err returns ErrUnsupported.
func (t *Tree) Err() error { return ErrUnsupported }

// Lacks returns all limits that are set.
func (t *Tree) Lacks(l Limits) []Lack {
	var all []Lack
	for _, name := range l.names() {
		all = append(all, Lack{Limit: name, Err: ErrUnsupported})
	}
	return all
}

// New returns an error.
func (t *Tree) New(string, Limits) (*Group, error) { return nil, ErrUnsupported }

// Close does nothing.
func (t *Tree) Close() error { return nil }

// Group is not available on this system.
type Group struct{}

// Open returns an error.
func (g *Group) Open() (*os.File, error) { return nil, ErrUnsupported }

// Kill does nothing.
func (g *Group) Kill() error { return nil }

// Reached returns nothing.
func (g *Group) Reached() Reached { return Reached{} }

// Remove does nothing.
func (g *Group) Remove() error { return nil }
