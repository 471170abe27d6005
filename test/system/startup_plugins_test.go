package system

import (
	"os"

	"github.com/catena-dev/catena/test/internal/cluster"
)

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func read(path string) []byte {
	b, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	return b
}

// rewrite replaces a file, which may be a link to one that is needed.
func rewrite(path string, content []byte, mode os.FileMode) error {
	return errorsOf(os.Remove(path), cluster.WriteProgram(path, content), os.Chmod(path, mode))
}
