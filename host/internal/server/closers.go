package server

import (
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
)

// closers are what has to be undone at the end. Register one before what can fail
// after it.
type closers []closer

type closer struct {
	name string
	do   func() error
}

func (c *closers) add(name string, f func() error) { *c = append(*c, closer{name, f}) }

// close runs all of them, the latest first, and joins their errors.
func (c *closers) close(log hclog.Logger) error {
	var errs []error
	for _, part := range slices.Backward(*c) {
		began := time.Now()
		errs = append(errs, part.do())
		log.Debug("part of the server closed", "part", part.name, "took", time.Since(began).Round(time.Millisecond))
	}
	*c = nil
	return errors.Join(errs...)
}
