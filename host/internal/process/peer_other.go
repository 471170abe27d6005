//go:build !linux

package process

import "net"

// peerOf does not know: only the permissions of the socket's folder protect it on this
// system.
func peerOf(*net.UnixConn) (pid int, err error) { return 0, nil }

// checkListener does not know either.
func checkListener(*net.UnixConn, int) error { return nil }
