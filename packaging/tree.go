package main

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// file is a file, or a link, of an installed Catena.
type file struct {
	path   string // where it is installed
	source string // what is installed; empty for a link
	link   string // what a link points to
	mode   fs.FileMode
	config bool // an upgrade keeps it if it has been changed
}

// stages are those that come with Catena. Under these names the program is the stage.
var stages = []string{"aggregator", "core", "extensions", "controllers"}

// tree returns the files of an installed Catena, in the order of their paths.
func (r release) tree(arch string) ([]file, error) {
	all := []file{
		{path: "/usr/bin/catena", source: filepath.Join(r.build, arch, "catena"), mode: 0o755},
		{path: "/etc/catena/catena.yaml", source: filepath.Join(r.source, "host/internal/config/init.yaml"), config: true},
		{path: "/usr/lib/systemd/system/catena.service", source: filepath.Join(r.source, "configs/systemd/catena.service")},
		{path: "/usr/lib/systemd/system/catena.socket", source: filepath.Join(r.source, "configs/systemd/catena.socket")},
	}
	for _, stage := range stages {
		all = append(all, file{path: "/usr/lib/catena/plugins/catena-stage-" + stage, link: "../../../bin/catena", mode: 0o777})
	}
	for _, from := range []struct{ path, to string }{
		{filepath.Join(r.build, "share"), "/usr/share"},
		{filepath.Join(r.source, "LICENSE"), "/usr/share/doc/catena/LICENSE"},
		{filepath.Join(r.source, "README.md"), "/usr/share/doc/catena/README.md"},
		{filepath.Join(r.source, "CHANGELOG.md"), "/usr/share/doc/catena/CHANGELOG.md"},
		{filepath.Join(r.source, "docs"), "/usr/share/doc/catena/docs"},
		{filepath.Join(r.source, "configs"), "/usr/share/doc/catena/configs"},
	} {
		err := filepath.WalkDir(from.path, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				all = append(all, file{path: from.to + strings.TrimPrefix(path, from.path), source: path})
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	for i := range all {
		if all[i].mode == 0 {
			all[i].mode = 0o644
		}
	}
	slices.SortFunc(all, func(a, b file) int { return strings.Compare(a.path, b.path) })
	return all, nil
}
