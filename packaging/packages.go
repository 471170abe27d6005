package main

import (
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// packageVersion returns a version as packages have it: 1.2.3~rc.1 is before 1.2.3. One of development has the time of its commit, so
// that a newer one is newer: 1.2.3~dev.20231114221320+abcdef0.
func packageVersion(version string, date time.Time) string {
	number, commit, _ := strings.Cut(strings.TrimPrefix(version, "v"), "+")
	number = strings.Replace(number, "-", "~", 1)
	if strings.HasSuffix(number, "~dev") {
		number += "." + date.Format("20060102150405")
	}
	if commit == "" {
		return number
	}
	return number + "+" + commit
}

// packages writes the packages for Debian and Fedora, and the systems that go by them.
func (r release) packages(arch string, p product) error {
	for kind, suffix := range map[string]string{"deb": ".deb", "rpm": ".rpm"} {
		packager, err := nfpm.Get(kind)
		if err != nil {
			return err
		}
		err = write(r.name(p.name, "linux_"+arch+suffix), func(w io.Writer) error {
			return packager.Package(r.info(arch, p), w)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// info describes a package.
func (r release) info(arch string, p product) *nfpm.Info {
	script := func(name string) string { return filepath.Join(r.source, "packaging", "scripts", name) }
	info := &nfpm.Info{
		Name: p.name, Arch: arch, Platform: "linux",
		Version: packageVersion(r.version, r.date), VersionSchema: "none", Release: "1",
		Section: "admin", Priority: "optional", Maintainer: "The Catena authors <catena@catena.dev>", License: "Apache-2.0",
		Homepage:    "https://github.com/catena-dev/catena",
		Description: p.summary + "\n" + p.description,
		MTime:       r.date, DisableGlobbing: true,
		Overridables: nfpm.Overridables{
			Recommends: p.recommends,
			// The name of the machine that builds is none of the package's.
			RPM: nfpm.RPM{BuildHost: "catena.dev", Summary: p.summary},
		},
	}
	if p.service {
		info.Scripts = nfpm.Scripts{
			PostInstall: script("postinstall.sh"), PreRemove: script("preremove.sh"),
			PostRemove: script("postremove.sh"),
		}
	}
	for _, f := range p.files {
		content := &files.Content{
			Source: f.source, Destination: f.path,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: f.mode, MTime: r.date},
		}
		switch {
		case f.link != "":
			content.Source, content.Type = f.link, files.TypeSymlink
		case f.config:
			content.Type = files.TypeConfigNoReplace
		}
		info.Contents = append(info.Contents, content)
	}
	return nfpm.WithDefaults(info)
}
