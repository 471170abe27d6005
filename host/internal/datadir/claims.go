package datadir

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"github.com/catena-dev/catena/sdk/claim"
)

// claims is the file with the claims of the last run.
func claims(dir string) string { return filepath.Join(dir, "claims.json") }

// claimsVersion is the version of the claims file. The first one had no number: it was the
// object of the stages alone, in which /a/* was a prefix and /a/+ a child.
const claimsVersion = 2

// claimsFile has the claims of each stage in their text form.
type claimsFile struct {
	Version int                 `json:"version"`
	Stages  map[string][]string `json:"stages"`
}

// ReadClaims returns the claims of the last run, by stage. It is nil if there was none or
// its file cannot be read. A stage with a claim that cannot be read is left out: its claims
// are not known.
func ReadClaims(dir string) map[string][]claim.Claim {
	text, err := os.ReadFile(claims(dir))
	if err != nil {
		return nil
	}
	stages, parse := decodeClaims(text)
	if stages == nil {
		return nil
	}
	all := map[string][]claim.Claim{}
	for name, texts := range stages {
		if claims, err := parseAll(texts, parse); err == nil {
			all[name] = claims
		}
	}
	return all
}

func parseAll(texts []string, parse func(string) (claim.Claim, error)) ([]claim.Claim, error) {
	claims := make([]claim.Claim, len(texts))
	for i, text := range texts {
		var err error
		if claims[i], err = parse(text); err != nil {
			return nil, err
		}
	}
	return claims, nil
}

// decodeClaims returns the text forms in a claims file, and what reads them. There is nothing
// if the file is damaged or of a later version.
func decodeClaims(text []byte) (map[string][]string, func(string) (claim.Claim, error)) {
	var file claimsFile
	if err := json.Unmarshal(text, &file); err == nil && file.Version != 0 {
		if file.Version != claimsVersion {
			return nil, nil
		}
		return file.Stages, claim.Parse
	}
	var stages map[string][]string
	if err := json.Unmarshal(text, &stages); err != nil {
		return nil, nil
	}
	return stages, parseFirstVersion
}

// parseFirstVersion reads a claim of the first version of the file.
func parseFirstVersion(text string) (claim.Claim, error) {
	c := claim.Exact(text)
	if text == "/*" {
		c = claim.Prefix("/")
	} else if path, ok := strings.CutSuffix(text, "/*"); ok {
		c = claim.Prefix(path)
	} else if path, ok := strings.CutSuffix(text, "/+"); ok {
		c = claim.Child(path)
	}
	return c, c.Validate()
}

// WriteClaims replaces the claims of the last run in one step.
func WriteClaims(dir string, all map[string][]claim.Claim) error {
	file := claimsFile{Version: claimsVersion, Stages: map[string][]string{}}
	for name, stage := range all {
		file.Stages[name] = claim.Texts(stage)
	}
	text, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		return err
	}
	path := claims(dir)
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
