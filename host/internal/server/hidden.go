package server

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/catena-dev/catena/host/internal/config"
)

// hiddenFiles are what isolated stages do not see unless it is granted, wherever it lies: the configuration, and each file and
// directory that a flag of kube-apiserver or the configuration of the store names, also if it does not exist yet.
func hiddenFiles(cfg *config.Config) []string {
	var paths []string
	add := func(name string) {
		if path, err := filepath.Abs(name); err == nil && name != "" && path != "/" {
			paths = append(paths, path)
		}
	}
	for _, file := range cfg.Files {
		add(file)
		add(filepath.Join(filepath.Dir(file), "conf.d"))
	}
	for _, file := range []string{cfg.Store.CAFile, cfg.Store.CertFile, cfg.Store.KeyFile} {
		add(file)
	}
	all := []map[string][]string{cfg.APIServer}
	for _, st := range cfg.Stages {
		all = append(all, st.APIServer)
	}
	for _, flags := range all {
		for flag, values := range flags {
			for _, value := range values {
				for item := range strings.SplitSeq(value, ",") {
					item = strings.TrimSpace(item)
					file, _, _ := strings.Cut(item, ":") // of tls-sni-cert-key: CERTIFICATE,KEY:NAME,NAME
					for _, name := range []string{item, file} {
						if namesFile(flag, name) {
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
			"authority", "cafile", "cert", "certfile", "certificate", "config", "dir", "endpoint", "file", "key", "keyfile", "manifest", "path",
		}, word)
	})
	slash := strings.Contains(value, "/")
	return err == nil && (slash || ofFile) || slash && ofFile && !strings.ContainsAny(value, ":=")
}
