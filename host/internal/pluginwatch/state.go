package pluginwatch

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"time"
)

// state is what of a file changes with its content.
type state struct {
	path     string
	device   uint64
	inode    uint64
	size     int64
	modified time.Time
	changed  time.Time
	mode     os.FileMode
}

func stateOf(path string) (state, error) {
	info, err := os.Stat(path)
	if err != nil {
		return state{}, err
	}
	s := state{path: path, size: info.Size(), modified: info.ModTime(), mode: info.Mode()}
	s.fromSystem(info)
	return s, nil
}

// checkComplete finds an executable file of which the end is missing: the copy has been
// broken off, or goes on in a moment. Files that are no ELF are taken as they are.
func checkComplete(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	head := make([]byte, len(elf.ELFMAG))
	if _, err := io.ReadFull(f, head); err != nil || !bytes.Equal(head, []byte(elf.ELFMAG)) {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	program, err := elf.NewFile(f)
	if err != nil {
		return fmt.Errorf("%s is incomplete: %w", path, err)
	}
	end := uint64(0)
	for _, p := range program.Progs {
		end = max(end, p.Off+p.Filesz)
	}
	for _, s := range program.Sections {
		if s.Type != elf.SHT_NOBITS {
			end = max(end, s.Offset+s.FileSize)
		}
	}
	if size := uint64(info.Size()); size < end {
		return fmt.Errorf("%s is incomplete: it has %d bytes of %d", path, size, end)
	}
	return nil
}
