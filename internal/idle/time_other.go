//go:build !unix

package idle

import "time"

// started is when this package was.
var started = time.Now()

// processorTime is not known on this system: a program is never idle.
func processorTime() time.Duration { return time.Since(started) }
