package main

import (
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// described is what git describe prints for a commit after a tag: v1.2.3-4-gabcdef0.
var described = regexp.MustCompile(`-([0-9]+)-g([0-9a-f]+)`)

// packageVersion returns a version as packages have it: 1.2.3~rc.1 is before 1.2.3, and 1.2.3+4.gabcdef0 after it. Without a release,
// it is 0, with the time and the commit.
func packageVersion(version string, date time.Time) string {
	number, ok := strings.CutPrefix(version, "v")
	if !ok {
		return "0~" + date.Format("20060102150405") + "." + strings.ReplaceAll(version, "-", ".")
	}
	number = described.ReplaceAllString(number, "+$1.g$2")
	number = strings.Replace(number, "-dirty", "+dirty", 1)
	return strings.ReplaceAll(number, "-", "~")
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
