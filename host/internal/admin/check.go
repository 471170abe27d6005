package admin

import (
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/catena-dev/catena/host/internal/config"
)

// MaxBudget is how many CPUs comparing may take at most.
const MaxBudget = 8

func (r *SwapRequest) check() error {
	errs := []error{checkStage(r.Stage), checkStageBinary(r.Binary, r.SHA256)}
	if e := r.Rollback.ErrorRate; !(e >= 0 && e <= 1) { // NaN too
		errs = append(errs, fmt.Errorf("rollback.ErrorRate: want a number from 0 to 1, have %g", e))
	}
	if p := r.Rollback.Probation; p < 0 {
		errs = append(errs, fmt.Errorf("rollback.Probation: want a time that is not negative, have %s", p))
	}
	if r.Finalize && r.Binary != "" {
		errs = append(errs, errors.New("finalize goes with no binary"))
	}
	if r.Canary != nil {
		errs = append(errs, r.Canary.Validate())
	}
	return errors.Join(errs...)
}

func (r *ConcludeRequest) check() error { return checkStage(r.Stage) }

func (r *PlanRequest) check() error {
	errs := []error{checkStage(r.Stage), checkStageBinary(r.Binary, r.SHA256)}
	if r.Binary == "" {
		errs = append(errs, errors.New("binary: a path is required"))
	}
	if r.Sample < 1 {
		errs = append(errs, fmt.Errorf("sample: want a positive number, have %d", r.Sample))
	}
	return errors.Join(errs...)
}

func (l *LogLevel) check() error { return nil } // SetLogLevel knows the names and levels

func (r *HostUpgradeRequest) check() error { return checkBinary(r.Binary, "") }

func (r *ShadowRequest) check() error {
	errs := []error{checkStage(r.Stage), checkStageBinary(r.Binary, r.SHA256)}
	if r.Binary == "" {
		errs = append(errs, errors.New("binary: a path is required"))
	}
	if r.For <= 0 {
		errs = append(errs, fmt.Errorf("for: want a positive time, have %s", r.For))
	}
	if !(r.Sample > 0 && r.Sample <= 1) {
		errs = append(errs, fmt.Errorf("sample: want a number above 0 and up to 1, have %g", r.Sample))
	}
	if !(r.Budget > 0 && r.Budget <= MaxBudget) {
		errs = append(errs, fmt.Errorf("budget: want a number above 0 and up to %d, have %g", MaxBudget, r.Budget))
	}
	return errors.Join(errs...)
}

func checkStage(name string) error {
	if name == "" {
		return errors.New("stage: a name is required")
	}
	return nil
}

// checkStageBinary checks the binary of a stage, which may be the one in the program of the host.
func checkStageBinary(binary, digest string) error {
	if binary == config.BuiltinBinary {
		binary = ""
	}
	return checkBinary(binary, digest)
}

// checkBinary checks a path, which may be empty, and the digest that the file must have, which may be too.
func checkBinary(path, digest string) error {
	var errs []error
	if path != "" && !filepath.IsAbs(path) {
		errs = append(errs, fmt.Errorf("binary: want an absolute path, have %q", path))
	}
	if b, err := hex.DecodeString(digest); digest != "" && (err != nil || len(b) != 32) {
		errs = append(errs, fmt.Errorf("sha256: want 64 hexadecimal digits, have %q", digest))
	}
	return errors.Join(errs...)
}
