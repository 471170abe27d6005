package main

import (
	"errors"
	"fmt"
	"io"
	"syscall"
)

// cutOff says what has happened if the connection to the host broke off before the host
// could say how a change went. Other errors are as they were.
func cutOff(change string, err error) error {
	for _, broken := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, broken) {
			return fmt.Errorf("the host has ended before the end of the %s: its next start is as its configuration says (%w)", change, err)
		}
	}
	return err
}
