//go:build !linux

package process

import "context"

// AdoptOrphans does nothing on this system.
func AdoptOrphans(context.Context) error { return nil }

// EndOrphans does nothing.
func EndOrphans() error { return nil }

// WithoutOrphans calls the function.
func WithoutOrphans(run func() int) int { return run() }
