package process

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
)

// checkFormat checks that the kernel of this machine can start a file: ELF for
// this architecture, or a script. It reads only the beginning.
func checkFormat(r io.ReaderAt) error {
	head := make([]byte, 20)
	n, err := r.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	head = head[:n]
	if bytes.HasPrefix(head, []byte("#!")) {
		return nil
	}
	if n < 20 || !bytes.HasPrefix(head, []byte(elf.ELFMAG)) {
		return errors.New("is no executable file (neither ELF nor a script); it may have been copied only in part")
	}
	return checkMachine(head)
}

func checkMachine(head []byte) error {
	var order binary.ByteOrder = binary.LittleEndian
	if elf.Data(head[elf.EI_DATA]) == elf.ELFDATA2MSB {
		order = binary.BigEndian
	}
	got := elf.Machine(order.Uint16(head[18:20]))
	if want, known := machines()[runtime.GOARCH]; known && got != want {
		return fmt.Errorf("is built for %s, this machine is %s; build it with GOARCH=%s",
			architecture(got), runtime.GOARCH, runtime.GOARCH)
	}
	switch elf.Type(order.Uint16(head[16:18])) {
	case elf.ET_EXEC, elf.ET_DYN:
		return nil
	}
	return errors.New("is an ELF file, but no program")
}

func machines() map[string]elf.Machine {
	return map[string]elf.Machine{
		"386": elf.EM_386, "amd64": elf.EM_X86_64, "arm": elf.EM_ARM, "arm64": elf.EM_AARCH64,
		"loong64": elf.EM_LOONGARCH, "ppc64": elf.EM_PPC64, "ppc64le": elf.EM_PPC64,
		"riscv64": elf.EM_RISCV, "s390x": elf.EM_S390,
	}
}

// architecture is Go's name of a machine, or ELF's.
func architecture(m elf.Machine) string {
	for name, machine := range machines() {
		if machine == m && name != "ppc64" {
			return name
		}
	}
	return m.String()
}
