package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/knadh/koanf/parsers/json"
	"github.com/knadh/koanf/parsers/toml/v2"
	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"

	"github.com/catena-dev/catena/host/internal/guard"
)

// fileLayers reads the files of --config and those of conf.d beside the last one.
// Files that cannot be read or parsed are reported and left out.
func fileLayers(files []string, p *problems) []*layer {
	var layers []*layer
	for _, file := range files {
		if l := readLayer(file, p); l != nil {
			l.complete = true
			layers = append(layers, l)
		}
	}
	if len(files) == 0 {
		return layers
	}
	for _, file := range fragments(filepath.Join(filepath.Dir(files[len(files)-1]), "conf.d"), p) {
		if l := readLayer(file, p); l != nil {
			layers = append(layers, l)
		}
	}
	return layers
}

// fragments lists the configuration files in dir by name; none if there is no dir.
// Hidden files and files of other formats are ignored.
func fragments(dir string, p *problems) []string {
	err := guard.CheckPath(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var entries []fs.DirEntry
	if err == nil {
		entries, err = os.ReadDir(dir)
	}
	if err != nil {
		p.addFile(dir, 0, "%v", bare(err))
	}
	var files []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && formatOf(e.Name()) != nil {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files
}

// ReadFile reads one file as the host does, whatever it is about: the same formats, numbers and mistakes.
func ReadFile(file string) (map[string]any, error) {
	p := &problems{}
	l := readLayer(file, p)
	if l == nil {
		return nil, p.err()
	}
	return l.values, nil
}

func readLayer(file string, p *problems) *layer {
	if formatOf(file) == nil {
		p.addFile(file, 0, "unknown format %q: want .yaml, .yml, .json or .toml", filepath.Ext(file))
		return nil
	}
	if err := guard.CheckPath(file); err != nil {
		p.addFile(file, 0, "%v", bare(err))
		return nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		p.addFile(file, 0, "%v", bare(err))
		return nil
	}
	return parseLayer(file, data, p)
}

// bare returns the reason of an error of package os, without the path.
func bare(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// format is how files with one extension are read.
type format struct {
	parser koanf.Parser
	// index finds the lines of keys, and mistakes that the parser accepts. It may be nil.
	index func(l *layer, data []byte, p *problems)
	json  bool
	yaml  bool
}

// formatOf returns nil for a file of no known format.
func formatOf(file string) *format {
	switch strings.ToLower(filepath.Ext(file)) {
	case ".yaml", ".yml":
		return &format{parser: yaml.Parser(), index: indexYAML, yaml: true}
	case ".json":
		return &format{parser: json.Parser(), index: indexJSON, json: true}
	case ".toml":
		return &format{parser: toml.Parser()}
	}
	return nil
}

// parseLayer returns nil if data cannot be parsed.
func parseLayer(file string, data []byte, p *problems) *layer {
	f := formatOf(file)
	before := len(p.list)
	l := &layer{source: file, lines: map[string]int{}, empty: map[string]bool{}}
	ko := koanf.New(".")
	if f.index != nil {
		f.index(l, data, p)
	}
	if len(p.list) == before {
		if err := ko.Load(rawbytes.Provider(data), f.parser); err != nil {
			p.addParse(file, data, err)
		}
	}
	if len(p.list) > before {
		p.incomplete, p.unread = true, true
		return nil
	}
	l.values = ko.Raw()
	if f.json {
		wholeNumbers(l.values)
	}
	return l
}

func (p *problems) addFile(file string, line int, format string, args ...any) {
	p.list = append(p.list, &Problem{Source: file, Line: line, Message: fmt.Sprintf(format, args...)})
	p.incomplete, p.unread = true, true
}

// addParse reports the error of a parser, with its line if it is known.
func (p *problems) addParse(file string, data []byte, err error) {
	message, line := err.Error(), 0
	var position interface{ Position() (row, col int) } // of TOML
	if errors.As(err, &position) {
		line, _ = position.Position()
	}
	if offset, ok := jsonOffset(err); ok {
		line = lineAt(data, offset)
	}
	if f := formatOf(file); f != nil && f.yaml {
		message, line = yamlProblem(data, message)
	}
	p.addFile(file, line, "%s", strings.TrimPrefix(message, "toml: "))
}
