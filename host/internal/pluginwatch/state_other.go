//go:build !linux

package pluginwatch

import "os"

func (s *state) fromSystem(os.FileInfo) {}

func isOpenForWriting(string) bool { return false }
