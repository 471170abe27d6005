//go:build !linux

package idle

import "os"

// signalUse sends nothing on this system.
func signalUse(chan<- os.Signal) (stop func()) { return func() {} }
