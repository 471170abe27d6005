//go:build !linux

package scheduling

func set(string) error { return nil }
