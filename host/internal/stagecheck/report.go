package stagecheck

import (
	"fmt"
	"time"
)

// Status is how a check ended.
type Status string

// The results of a check.
const (
	Passed  Status = "passed"
	Failed  Status = "failed"
	Skipped Status = "skipped"
)

// Result is how one check ended.
type Result struct {
	// Check is its name, and Summary what it looks at, in one line.
	Check   string `json:"check"`
	Summary string `json:"summary"`
	Status  Status `json:"status"`
	// Expected and Got are set if it has failed.
	Expected string `json:"expected,omitempty"`
	Got      string `json:"got,omitempty"`
	// Reason is why it was skipped.
	Reason string `json:"reason,omitempty"`
	// Section of docs/protocol.md that specifies what was checked, as FILE#ANCHOR.
	Section string        `json:"section"`
	Took    time.Duration `json:"tookNanoseconds"`
}

// Report is what is known about a binary in the end.
type Report struct {
	Binary  string `json:"binary"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	SDK     string `json:"sdk,omitempty"`
	// Control is how the control socket is protected: mtls or directory.
	Control string        `json:"control,omitempty"`
	Results []Result      `json:"results"`
	Took    time.Duration `json:"tookNanoseconds"`
	// Log holds the last lines of the stage's log, if a check has failed.
	Log []string `json:"log,omitempty"`
}

// Count returns how many checks ended that way.
func (r *Report) Count(status Status) int {
	n := 0
	for _, result := range r.Results {
		if result.Status == status {
			n++
		}
	}
	return n
}

// mismatch is the error of a check that has failed.
type mismatch struct{ expected, got string }

func (m *mismatch) Error() string { return "expected " + m.expected + ", got " + m.got }

// want is the error of a check that expected something else.
func want(expected, got string, args ...any) error {
	return &mismatch{expected: expected, got: fmt.Sprintf(got, args...)}
}

// skip is the error of a check that does not apply.
type skip string

func (s skip) Error() string { return string(s) }

func skipf(format string, args ...any) error { return skip(fmt.Sprintf(format, args...)) }
