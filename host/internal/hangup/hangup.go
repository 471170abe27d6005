// Package hangup keeps SIGHUP, which asks a server to read its configuration again, from ending one that starts: the configuration is yet
// to be read. Other commands end with the terminal that they run in.
//
// It imports nothing that takes time, so that it is initialized before what does.
package hangup

import (
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
)

// Until the server asks for the signal.
func init() {
	if serves(os.Args) {
		signal.Ignore(syscall.SIGHUP)
	}
}

// serves reports whether a command line is that of a server.
func serves(args []string) bool {
	if len(args) == 0 {
		return false
	}
	return filepath.Base(args[0]) == "kube-apiserver" || slices.ContainsFunc(args[1:],
		func(arg string) bool { return arg == "serve" || arg == "apiserver" })
}
