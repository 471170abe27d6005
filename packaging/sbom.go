package main

import (
	"debug/buildinfo"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
)

// noAssertion is the value of what is not known.
const noAssertion = "NOASSERTION"

// sbom writes what the program was built from, as the Go compiler has recorded it, as SPDX 2.3: https://spdx.github.io/spdx-spec/v2.3
func (r release) sbom(arch string, p product) error {
	for _, f := range p.files {
		if f.path != p.program {
			continue
		}
		info, err := buildinfo.ReadFile(f.source)
		if err != nil {
			return err
		}
		sum, err := digest(f.source)
		if err != nil {
			return err
		}
		return write(r.name(p.name, "linux_"+arch+".spdx.json"), func(w io.Writer) error {
			return spdxjson.Write(r.document(p.name, arch, sum, info), w, spdxjson.Indent("  "))
		})
	}
	return fmt.Errorf("no program")
}

func (r release) document(name, arch, sum string, info *debug.BuildInfo) *spdx.Document {
	program := module(0, info.Main.Path, r.version)
	program.PackageLicenseConcluded, program.PackageLicenseDeclared, program.PrimaryPackagePurpose = "Apache-2.0", "Apache-2.0", "APPLICATION"
	program.PackageChecksums = []spdx.Checksum{{Algorithm: spdx.SHA256, Value: sum}}
	doc := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName:      name + " " + r.version + " linux/" + arch,
		DocumentNamespace: "https://" + info.Main.Path + "/spdx/" + r.version + "/linux/" + arch + "/" + sum,
		CreationInfo:      &spdx.CreationInfo{Created: r.date.Format(time.RFC3339), Creators: []spdx.Creator{{CreatorType: "Tool", Creator: "catena-packaging"}}},
		Packages:          []*spdx.Package{program, module(1, "stdlib", strings.TrimPrefix(info.GoVersion, "go"))},
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		doc.Packages = append(doc.Packages, module(len(doc.Packages), m.Path, m.Version))
	}
	relate := func(a spdx.ElementID, how string, b spdx.ElementID) {
		doc.Relationships = append(doc.Relationships,
			&spdx.Relationship{RefA: common.MakeDocElementID("", string(a)), Relationship: how, RefB: common.MakeDocElementID("", string(b))})
	}
	relate(doc.SPDXIdentifier, spdx.RelationshipDescribes, program.PackageSPDXIdentifier)
	for _, p := range doc.Packages[1:] {
		relate(program.PackageSPDXIdentifier, spdx.RelationshipDependsOn, p.PackageSPDXIdentifier)
	}
	return doc
}

// module is a module of Go.
func module(number int, path, version string) *spdx.Package {
	return &spdx.Package{
		PackageSPDXIdentifier: spdx.ElementID(fmt.Sprintf("Package-%d", number)), PackageName: path, PackageVersion: version,
		PackageDownloadLocation: noAssertion, PackageLicenseConcluded: noAssertion, PackageLicenseDeclared: noAssertion, PackageCopyrightText: noAssertion,
		PrimaryPackagePurpose: "LIBRARY",
		PackageExternalReferences: []*spdx.PackageExternalReference{
			{Category: spdx.CategoryPackageManager, RefType: spdx.PackageManagerPURL, Locator: "pkg:golang/" + path + "@" + version},
		},
	}
}
