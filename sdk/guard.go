package sdk

import (
	"fmt"
	"runtime/debug"

	"github.com/hashicorp/go-hclog"
)

// guard runs code of the stage's author. A panic in it becomes an error, and its stack
// is logged.
func guard(log hclog.Logger, what string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("panic", "in", what, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fmt.Errorf("%s: panic: %v", what, p)
		}
	}()
	return f()
}
