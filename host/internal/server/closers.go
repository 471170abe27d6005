package server

import (
	"errors"
	"slices"
)

// closers are what has to be undone at the end. Register one before what can fail
// after it.
type closers []func() error

func (c *closers) add(f func() error) { *c = append(*c, f) }

// close runs all of them, the latest first, and joins their errors.
func (c *closers) close() error {
	var errs []error
	for _, f := range slices.Backward(*c) {
		errs = append(errs, f())
	}
	*c = nil
	return errors.Join(errs...)
}
