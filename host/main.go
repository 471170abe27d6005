// Command catena is an API server that is a chain of processes: this one, the
// host, and one plugin process for each stage. See the README.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// version is the version of Catena, set by the linker.
var version = "unknown"

func main() {
	err := rootCommand(os.Stdout).ExecuteContext(context.Background())
	if err == nil {
		return
	}
	var code exitCode
	if errors.As(err, &code) {
		os.Exit(int(code))
	}
	fmt.Fprintf(os.Stderr, "catena: %v\n", err)
	os.Exit(1)
}

// exitCode is an error whose message has been printed already.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }
