//go:build !linux

package usage

// Of measures nothing on this system.
func Of([]int) (map[int]Usage, error) { return nil, ErrUnsupported }

// Memory measures nothing on this system.
func Memory([]int) int64 { return 0 }
