package seccomp

import (
	_ "embed" // for the numbers

	"golang.org/x/sys/unix"
)

const auditArch = unix.AUDIT_ARCH_AARCH64

// numbers has the number of each call of this architecture. The test writes it with -update.
//
//go:embed calls_arm64.txt
var numbers string
