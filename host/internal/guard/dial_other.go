//go:build !linux

package guard

import (
	"context"
	"net"
)

// Dial connects to a socket of a stage.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", path)
}
