//go:build !linux

package process

import "context"

// AdoptOrphans does nothing on this system.
func AdoptOrphans(context.Context) error { return nil }
