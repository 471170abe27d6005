//go:build !linux

package sdk

import "net"

// checkPeer lets everybody in: only the permissions of the socket's folder, which
// belongs to the host's user, protect it on this system.
func checkPeer(net.Conn, int, int) error { return nil }
