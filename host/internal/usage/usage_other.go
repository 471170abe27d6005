//go:build !linux

package usage

// Of measures nothing on this system.
func Of([]int) (map[int]Usage, error) { return nil, ErrUnsupported }

// Lineage knows the process alone.
func Lineage(pid int) ([]Process, bool) { return []Process{{PID: pid}}, true }

// Belongs reports whether both are the same.
func Belongs(pid, leader int) bool { return pid == leader }

// Memory measures nothing on this system.
func Memory([]int) int64 { return 0 }
