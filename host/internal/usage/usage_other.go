//go:build !linux

package usage

// Of measures nothing on this system.
func Of([]int) (map[int]Usage, error) { return nil, ErrUnsupported }

// Lineage knows the process alone.
func Lineage(pid int) ([]int, bool) { return []int{pid}, true }

// Memory measures nothing on this system.
func Memory([]int) int64 { return 0 }
