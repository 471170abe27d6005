package rules

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the directory of the module.
var root = filepath.Join("..", "..")

// documents returns the text of each Markdown file by its path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	docs := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "bin" || d.Name() == ".git"):
			return filepath.SkipDir
		case !d.IsDir() && filepath.Ext(path) == ".md":
			text, err := os.ReadFile(path)
			docs[path] = string(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return docs
}

// A link to a file or directory of the repository has a target, and so has one to a heading.
func TestLinksOfDocuments(t *testing.T) {
	t.Parallel()
	docs := documents(t)
	link := regexp.MustCompile(`\]\(([^)\s]*)\)`)
	for path, text := range docs {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			file, heading, _ := strings.Cut(m[1], "#")
			if strings.Contains(m[1], "://") {
				continue
			}
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: link to %s, which does not exist", path, m[1])
			}
			if heading != "" && strings.HasSuffix(target, ".md") && !anchors(docs[target])[heading] {
				t.Errorf("%s: link to %s, which is no heading", path, m[1])
			}
		}
	}
}

// anchors returns the anchors that GitHub makes of the headings of a document.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	punctuation := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		heading := punctuation.ReplaceAllString(strings.ToLower(m[1]), "")
		found[strings.ReplaceAll(heading, " ", "-")] = true
	}
	return found
}

// Files and directories that documents for contributors name in backquotes exist.
func TestPathsOfDocuments(t *testing.T) {
	t.Parallel()
	quoted := regexp.MustCompile("`((?:host|sdk|plugins|test|docs|examples|configs)/[a-z0-9/._-]*)`")
	docs := documents(t)
	for _, name := range []string{"CONTRIBUTING.md", "docs/architecture.md"} {
		paths := quoted.FindAllStringSubmatch(docs[filepath.Join(root, name)], -1)
		if len(paths) == 0 {
			t.Errorf("%s names no path", name)
		}
		for _, m := range paths {
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s names %s, which does not exist", name, m[1])
			}
		}
	}
}

// docs/architecture.md lists the packages of the host so that imports point down the list.
func TestImportsFollowTheArchitecture(t *testing.T) {
	t.Parallel()
	_, rest, _ := strings.Cut(documents(t)[filepath.Join(root, "docs", "architecture.md")], "\n## Packages\n")
	section, _, _ := strings.Cut(rest, "\n## ")
	place := map[string]int{}
	for i, m := range regexp.MustCompile(`\]\(\.\./(host[a-z0-9/]*)\)`).FindAllStringSubmatch(section, -1) {
		place[module+m[1]] = i
	}
	for pkg, imports := range list(t, "Imports", "./host/...") {
		if _, ok := place[pkg]; !ok && !strings.Contains(pkg, "/testdata/") {
			t.Errorf("docs/architecture.md does not list %s", pkg)
		}
		for _, imp := range imports {
			if under(imp, module+"host") && place[imp] <= place[pkg] {
				t.Errorf("%s imports %s, which is above it in docs/architecture.md", pkg, imp)
			}
		}
	}
}

// Every target that a document names is one that "make help" lists.
func TestTargetsOfDocuments(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):.*## `).FindAllStringSubmatch(string(makefile), -1) {
		listed[m[1]] = true
	}
	for name, text := range documents(t) {
		for _, m := range regexp.MustCompile("`make ([a-z][a-z0-9-]*)").FindAllStringSubmatch(text, -1) {
			if !listed[m[1]] {
				t.Errorf("%s names make %s, which make help does not list", name, m[1])
			}
		}
	}
}
