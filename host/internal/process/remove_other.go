//go:build !linux

package process

import "os"

// removeTree is os.RemoveAll.
func removeTree(dir string) error { return os.RemoveAll(dir) }
