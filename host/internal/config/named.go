package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// NamedFiles returns the absolute paths of the configuration itself and of each file and directory that a flag of
// kube-apiserver or the configuration of the store names, also if it does not exist yet; sorted. The values of a flag
// are files if isFile reports that, or if they look like it. Isolated stages do not see them unless they are granted.
func (c *Config) NamedFiles(isFile func(flag string) bool) []string {
	var paths []string
	add := func(name string) {
		if path, err := filepath.Abs(name); err == nil && name != "" && path != "/" {
			paths = append(paths, path)
		}
	}
	for _, file := range c.Files {
		add(file)
		add(filepath.Join(filepath.Dir(file), "conf.d"))
	}
	for _, file := range []string{c.Store.CAFile, c.Store.CertFile, c.Store.KeyFile} {
		add(file)
	}
	all := []map[string][]string{c.APIServer}
	for _, st := range c.Stages {
		all = append(all, st.APIServer)
	}
	for _, flags := range all {
		for flag, values := range flags {
			for _, value := range values {
				for item := range strings.SplitSeq(value, ",") {
					item = strings.TrimSpace(item)
					file, _, _ := strings.Cut(item, ":") // of tls-sni-cert-key: CERTIFICATE,KEY:NAME,NAME
					for _, name := range []string{item, file} {
						if isFile(flag) || namesFile(flag, name) {
							add(name)
						}
					}
				}
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// namesFile reports whether a value, or a part of one, is the path of a file, by the name of its flag, by its form and by what exists.
// Other values have slashes too, and other flags than those of files name some.
func namesFile(flag, value string) bool {
	_, err := os.Stat(value)
	ofFile := slices.ContainsFunc(strings.Split(flag, "-"), func(word string) bool {
		return slices.Contains([]string{
			"authority", "cafile", "cert", "certfile", "certificate", "config", "dir", "endpoint", "file", "key",
			"keyfile", "manifest", "path",
		}, word)
	})
	slash := strings.Contains(value, "/")
	return err == nil && (slash || ofFile) || slash && ofFile && !strings.ContainsAny(value, ":=")
}
