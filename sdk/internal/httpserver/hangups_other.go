//go:build !linux

package httpserver

// watched is nothing: on this system, requests end when they cannot be responded to.
type watched struct{}

func (h *hangups) watch(*conn)   {}
func (h *hangups) unwatch(*conn) {}
func (h *hangups) stop()         {}
