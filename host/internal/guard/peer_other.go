//go:build !linux

package guard

import (
	"errors"
	"net"
)

// PeerOf returns errors.ErrUnsupported: only the modes of a socket and of its directory protect
// it on this system.
func PeerOf(net.Conn) (Peer, error) { return Peer{}, errors.ErrUnsupported }
