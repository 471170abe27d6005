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

// products are what is installed by itself.
func (r release) products(arch string) ([]product, error) {
	tree, err := r.tree(arch)
	if err != nil {
		return nil, err
	}
	all := []product{{
		name: "catena", summary: "Kubernetes API server as a chain of processes",
		program: "/usr/bin/catena", files: tree, service: true,
		description: "A small host relays each request to the stage that owns its path. Each stage is a\n" +
			"plugin, which can crash, be replaced and be limited on its own.",
		recommends: []string{"ca-certificates"},
	}}
	for _, minor := range r.others {
		all = append(all, r.stagesOf(arch, minor))
	}
	return all, nil
}

// stagesOf are the stages of another minor release of Kubernetes: one program, which is each of them by its name.
func (r release) stagesOf(arch, minor string) product {
	dir := "/usr/lib/catena/kube-" + minor + "/catena-stage-"
	p := product{
		name: "catena-core-" + minor, summary: "Kubernetes " + minor + " as stages of Catena", program: dir + "core",
		description: "\"catena swap core --binary " + dir + "core\" takes a running\n" +
			"server to this release, without a failed request; \"--binary builtin\" is the way back.",
		recommends: []string{"catena"},
	}
	for _, stage := range stages {
		f := file{path: dir + stage, link: "catena-stage-core", mode: 0o777}
		if f.path == p.program {
			f = file{path: dir + stage, source: filepath.Join(r.build, arch, "kube-"+minor), mode: 0o755}
		}
		p.files = append(p.files, f)
	}
	doc := "/usr/share/doc/" + p.name
	p.files = append(p.files, file{path: doc + "/LICENSE", source: filepath.Join(r.source, "LICENSE"), mode: 0o644})
	slices.SortFunc(p.files, byPath)
	return p
}

func byPath(a, b file) int { return strings.Compare(a.path, b.path) }

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
	slices.SortFunc(all, byPath)
	return all, nil
}
