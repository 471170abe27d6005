package sdk

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

// statusz serves what Kubernetes' components have under that name, of a stage that has no page of its own for it. The structured
// form is Statusz of config.k8s.io/v1beta1, see k8s.io/apiserver/pkg/server/statusz.
type statusz struct {
	stage   Stage
	started time.Time
}

const (
	structuredStatusz = "application/json;v=v1beta1;g=config.k8s.io;as=Statusz"
	statuszNotice     = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only."
)

func (s statusz) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	up := time.Since(s.started)
	version := s.stage.describe().GetVersion()
	var paths []string
	for _, p := range pprof.Profiles() {
		paths = append(paths, "pprof/"+p.Name())
	}
	slices.Sort(paths)
	accepts := func(t string) bool { return strings.ReplaceAll(t, " ", "") == structuredStatusz }
	if !slices.ContainsFunc(strings.Split(r.Header.Get("Accept"), ","), accepts) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintf(w, "\n%s statusz\n%s\n\nStarted: %s\nUp: %s\nGo version: %s\nBinary version: %s\nPaths: %s\n",
			s.stage.Name, statuszNotice,
			s.started.Format(time.UnixDate), up.Round(time.Second), runtime.Version(), version, strings.Join(paths, " "))
		return
	}
	w.Header().Set("Content-Type", structuredStatusz)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": "Statusz", "apiVersion": "config.k8s.io/v1beta1", "metadata": map[string]string{"name": s.stage.Name},
		"startTime": s.started.UTC().Format(time.RFC3339), "uptimeSeconds": int64(up.Seconds()),
		"goVersion": runtime.Version(), "binaryVersion": version, "paths": paths,
	})
}
