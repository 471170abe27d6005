package process

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/catena-dev/catena/host/internal/guard"
	"github.com/catena-dev/catena/host/internal/printable"
)

// Contents are the files that a plugin brings, as one digest. Those of a program are its
// file. Those of a script, whose interpreter loads more, are all files in the directory of the
// script and below, but for other plugins there and for the script's signature.
type Contents struct {
	// SHA256 is in hexadecimal: of a program, what sha256sum prints of its file.
	SHA256 string
	// Script is set if the file is a script.
	Script bool
	// Uncovered is what runs too, and is not in the digest, in words for people: the
	// interpreter of a script, or the shared libraries of a program.
	Uncovered []string
}

// maxContents is how many files a script can bring.
const maxContents = 100_000

// SignatureSuffix ends the name of the file with the signature of a plugin.
const SignatureSuffix = ".sig"

// ReadContents returns the contents of the plugin at path. It checks the file as Check does.
func ReadContents(path string) (Contents, error) {
	f, err := open(path)
	if err != nil {
		return Contents{}, err
	}
	defer f.Close()
	return contentsOf(f)
}

func contentsOf(f *os.File) (Contents, error) {
	line, isScript := interpreter(f)
	var c Contents
	var err error
	if isScript {
		c, err = contentsOfScript(f)
		c.Script, c.Uncovered = true, append([]string{"the interpreter " + line}, c.Uncovered...)
	} else {
		c.SHA256, err = digest(section(f))
		c.Uncovered = libraries(f)
	}
	if err != nil {
		return Contents{}, fmt.Errorf("plugin binary %s: sha256: %w", f.Name(), err)
	}
	return c, nil
}

func section(f *os.File) *io.SectionReader { return io.NewSectionReader(f, 0, 1<<62) }

// interpreter returns what follows #! in a script.
func interpreter(f *os.File) (line string, isScript bool) {
	text, err := bufio.NewReader(io.LimitReader(section(f), 256)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", false
	}
	line, isScript = strings.CutPrefix(text, "#!")
	return printable.Line(strings.TrimSpace(line)), isScript
}

// libraries says what a dynamically linked program loads.
func libraries(f *os.File) []string {
	program, err := elf.NewFile(f)
	if err != nil {
		return nil
	}
	for _, p := range program.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		loader, err := io.ReadAll(io.LimitReader(p.Open(), 256))
		if err != nil {
			return nil
		}
		return []string{"shared libraries and their loader " + printable.Line(string(bytes.TrimRight(loader, "\x00")))}
	}
	return nil
}

// contentsOfScript hashes a list of the files with their digests.
func contentsOfScript(f *os.File) (Contents, error) {
	script, err := filepath.EvalSymlinks(f.Name())
	if err != nil {
		return Contents{}, err
	}
	s := &scriptFiles{dir: filepath.Dir(script), script: filepath.Base(script), open: f, lines: map[string]string{}}
	if err := filepath.WalkDir(s.dir, s.add); err != nil {
		return Contents{}, err
	}
	if s.lines[s.script] == "" {
		return Contents{}, fmt.Errorf("%s was replaced meanwhile", script)
	}
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(s.lines)) {
		fmt.Fprintf(h, "%s %q\n", s.lines[name], name)
	}
	return Contents{SHA256: hex.EncodeToString(h.Sum(nil)), Uncovered: s.outside}, nil
}

// scriptFiles are the files in the directory of a script.
type scriptFiles struct {
	dir, script string
	open        *os.File // the script
	// lines have kind and content of each file by its path below dir, with slashes.
	lines   map[string]string
	outside []string
}

// add is for filepath.WalkDir.
func (s *scriptFiles) add(path string, d fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	name, err := filepath.Rel(s.dir, path)
	if err != nil || s.ignores(name, d) {
		return err
	}
	if len(s.lines) == maxContents {
		return fmt.Errorf("%s holds more than %d files; a script needs a directory of its own", s.dir, maxContents)
	}
	line, err := s.line(path, name, d)
	if line != "" {
		s.lines[filepath.ToSlash(name)] = line
	}
	return err
}

// ignores reports whether a file is another plugin, or the signature of this one.
func (s *scriptFiles) ignores(name string, d fs.DirEntry) bool {
	if d.IsDir() || strings.ContainsRune(name, filepath.Separator) || name == s.script {
		return false
	}
	return name == s.script+SignatureSuffix || strings.HasPrefix(name, BinaryPrefix)
}

// line returns kind and content of a file; it is empty for a directory.
func (s *scriptFiles) line(path, name string, d fs.DirEntry) (string, error) {
	if d.Type()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(path)
		if end, endErr := filepath.EvalSymlinks(path); endErr != nil || end != s.dir &&
			!strings.HasPrefix(end, s.dir+string(filepath.Separator)) {
			s.outside = append(s.outside, fmt.Sprintf("%s, to which %s links", printable.Line(target),
				printable.Line(filepath.ToSlash(name))))
		}
		return fmt.Sprintf("link %q", target), err
	}
	info, err := d.Info()
	if err != nil {
		return "", err
	}
	if err := guard.CheckInfo(path, info); err != nil {
		return "", fmt.Errorf("%s %w", path, err)
	}
	if d.IsDir() {
		return "", nil
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is no regular file; a script needs a directory of its own", path)
	}
	sum, err := s.digest(path, name)
	return "file " + sum, err
}

// digest takes the script from the open file, which is what will be started.
func (s *scriptFiles) digest(path, name string) (string, error) {
	if name != s.script {
		return Digest(path)
	}
	return digest(section(s.open))
}
