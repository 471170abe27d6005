package sdk

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// inherited returns the file whose descriptor an environment variable names. Processes
// that this one starts do not inherit it.
func inherited(variable string) (*os.File, error) {
	value := os.Getenv(variable)
	fd, err := strconv.Atoi(value)
	if err != nil || fd < 0 {
		return nil, fmt.Errorf("%s=%q: is not a file descriptor", variable, value)
	}
	syscall.CloseOnExec(fd)
	file := os.NewFile(uintptr(fd), variable)
	if _, err := file.Stat(); err != nil {
		return nil, fmt.Errorf("%s=%q: %w", variable, value, err)
	}
	return file, nil
}

// inheritedListener returns the data socket.
func inheritedListener() (net.Listener, error) {
	file, err := inherited(stagev1.EnvListener)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	ln, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", stagev1.EnvListener, err)
	}
	return ln, nil
}

// exitHostGone is the status of a process whose host is gone.
const exitHostGone = 3

// exitWithHost ends the process at once when the host is gone, whatever state it is in.
func exitWithHost() error {
	pipe, err := inherited(stagev1.EnvParent)
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, pipe)
		os.Exit(exitHostGone)
	}()
	return nil
}

// leaveSignalsToHost keeps the process running when a signal goes to all processes of a
// terminal or of a service: the host gets it too, and stops its stages in order.
// The signals are caught, not ignored, since child processes would inherit that.
func leaveSignalsToHost() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
}
