package server

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/catena-dev/catena/host/internal/config"
)

// hiddenFiles are what isolated stages do not see unless it is granted, wherever it lies: the configuration, and each file and
// directory that a flag of kube-apiserver or the configuration of the store names.
func hiddenFiles(cfg *config.Config) []string {
	named := slices.Clone(cfg.Files)
	for _, file := range cfg.Files {
		named = append(named, filepath.Join(filepath.Dir(file), "conf.d"))
	}
	named = append(named, cfg.Store.CAFile, cfg.Store.CertFile, cfg.Store.KeyFile)
	all := []map[string][]string{cfg.APIServer}
	for _, st := range cfg.Stages {
		all = append(all, st.APIServer)
	}
	for _, flags := range all {
		for _, values := range flags {
			for _, value := range values {
				for item := range strings.SplitSeq(value, ",") {
					file, _, _ := strings.Cut(item, ":") // of tls-sni-cert-key: CERTIFICATE,KEY:NAME,NAME
					named = append(named, item, file)
				}
			}
		}
	}
	var paths []string
	for _, name := range named {
		// Of values that are no paths, most have no slash; of the others, none exists.
		path, err := filepath.Abs(strings.TrimSpace(name))
		if err != nil || !strings.Contains(name, "/") && !slices.Contains(cfg.Files, name) {
			continue
		}
		if _, err := os.Stat(path); err == nil && path != "/" {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}
