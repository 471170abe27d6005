package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"time"
)

// The parts of an SPDX 2.3 document, https://spdx.github.io/spdx-spec/v2.3, that are used here.
type (
	spdxDocument struct {
		SPDXVersion       string             `json:"spdxVersion"`
		DataLicense       string             `json:"dataLicense"`
		SPDXID            string             `json:"SPDXID"`
		Name              string             `json:"name"`
		DocumentNamespace string             `json:"documentNamespace"`
		CreationInfo      spdxCreation       `json:"creationInfo"`
		Packages          []spdxPackage      `json:"packages"`
		Relationships     []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		SPDXID           string         `json:"SPDXID"`
		Name             string         `json:"name"`
		VersionInfo      string         `json:"versionInfo"`
		DownloadLocation string         `json:"downloadLocation"`
		FilesAnalyzed    bool           `json:"filesAnalyzed"`
		LicenseConcluded string         `json:"licenseConcluded"`
		LicenseDeclared  string         `json:"licenseDeclared"`
		CopyrightText    string         `json:"copyrightText"`
		PrimaryPurpose   string         `json:"primaryPackagePurpose"`
		Checksums        []spdxChecksum `json:"checksums,omitempty"`
		ExternalRefs     []spdxRef      `json:"externalRefs"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxRef struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)

const noAssertion = "NOASSERTION"

// sbom writes what the program was built from, as the Go compiler has recorded it.
func (r release) sbom(arch string, tree []file) error {
	for _, f := range tree {
		if f.path != "/usr/bin/catena" {
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
		return write(r.name("linux_"+arch+".spdx.json"), func(w io.Writer) error {
			e := json.NewEncoder(w)
			e.SetIndent("", "  ")
			return e.Encode(r.document(arch, sum, info))
		})
	}
	return fmt.Errorf("no program")
}

func (r release) document(arch, sum string, info *debug.BuildInfo) spdxDocument {
	program := spdxModule(0, info.Main.Path, r.version)
	program.LicenseConcluded, program.LicenseDeclared, program.PrimaryPurpose = "Apache-2.0", "Apache-2.0", "APPLICATION"
	program.Checksums = []spdxChecksum{{"SHA256", sum}}
	doc := spdxDocument{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: "SPDXRef-DOCUMENT", Name: "catena " + r.version + " linux/" + arch,
		DocumentNamespace: "https://" + info.Main.Path + "/spdx/" + r.version + "/linux/" + arch + "/" + sum,
		CreationInfo:      spdxCreation{r.date.Format(time.RFC3339), []string{"Tool: catena-packaging"}},
		Packages:          []spdxPackage{program, spdxModule(1, "stdlib", strings.TrimPrefix(info.GoVersion, "go"))},
		Relationships:     []spdxRelationship{{"SPDXRef-DOCUMENT", "DESCRIBES", program.SPDXID}},
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		doc.Packages = append(doc.Packages, spdxModule(len(doc.Packages), m.Path, m.Version))
	}
	for _, p := range doc.Packages[1:] {
		doc.Relationships = append(doc.Relationships, spdxRelationship{program.SPDXID, "DEPENDS_ON", p.SPDXID})
	}
	return doc
}

// spdxModule is a module of Go.
func spdxModule(number int, path, version string) spdxPackage {
	return spdxPackage{
		SPDXID: fmt.Sprintf("SPDXRef-Package-%d", number), Name: path, VersionInfo: version, DownloadLocation: noAssertion,
		LicenseConcluded: noAssertion, LicenseDeclared: noAssertion, CopyrightText: noAssertion, PrimaryPurpose: "LIBRARY",
		ExternalRefs: []spdxRef{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path + "@" + version}},
	}
}
