//go:build linux && !amd64 && !arm64

package seccomp

const auditArch = 0

const numbers = ""
