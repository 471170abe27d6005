package isolation

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// firstForeignCall begins the calls of x32.
const firstForeignCall = 0x40000000

func deniedHere() []uint32 {
	return []uint32{unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_CREATE_MODULE, unix.SYS_USELIB, unix.SYS__SYSCTL, unix.SYS_USTAT, unix.SYS_SYSFS}
}
