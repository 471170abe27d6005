package isolation

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Mode is how much isolation a stage gets.
type Mode int

const (
	// Off is none.
	Off Mode = iota
	// Auto is all that the machine can do.
	Auto
	// Required is all means, or no start.
	Required
)

// Modes are the names of all modes, as in the configuration.
func Modes() []string { return []string{"auto", "required", "off"} }

// ParseMode returns the mode of that name.
func ParseMode(name string) (Mode, error) {
	switch name {
	case "auto":
		return Auto, nil
	case "required":
		return Required, nil
	case "off":
		return Off, nil
	}
	return Off, fmt.Errorf("isolation %q: want %s", name, strings.Join(Modes(), ", "))
}

// Spec is what the configuration says of the isolation of a stage.
type Spec struct {
	Mode Mode
	// Network is set if the stage may use the network.
	Network bool
	// Files are paths that are in reach besides what always is: PATH to read, PATH:rw to write too.
	Files []string
}

// Process is one process that is to be isolated.
type Process struct {
	Spec
	// Stage is the name of the stage.
	Stage string
	// Binary is the path of the plugin; its directory is in reach, to read.
	Binary string
	// DataDir is the stage's own directory, or empty. It is in reach, to write, and becomes the
	// property of the stage's own user.
	DataDir string
	// Dir is the directory of this process alone, for its control socket. It is in reach, to write.
	Dir string
	// Sockets are paths of sockets that the process connects to.
	Sockets []string
	// Socket is the path of its data socket, or empty. It becomes the property of the stage's own user where it has no
	// namespaces: the host connects as that user then.
	Socket string
	// OpenFiles is how many files it may have open; 0 is as many as this process, but at most 16384 unless ManyFiles is set.
	OpenFiles uint64
	ManyFiles bool
	// Own are the directories of the host, of which nothing but what is above is in reach, even if they are below one that is.
	Own []string
	// Hidden are absolute paths of files and directories that are out of reach unless they, or a directory above, are granted, even if they
	// are below one that is in reach. So is what is beside them, unless programs need it: where one secret is, there are others.
	Hidden []string
}

// file is a path that is granted.
type file struct {
	path  string
	write bool
}

// files parses Spec.Files. A relative path is relative to the working directory.
func (s Spec) files() ([]file, error) {
	var all []file
	for _, text := range s.Files {
		path, write := strings.CutSuffix(text, ":rw")
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("granted file %s: %w", path, err)
		}
		all = append(all, file{path: abs, write: write})
	}
	return all, nil
}
