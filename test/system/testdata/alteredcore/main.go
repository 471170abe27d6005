// Stage core with three mistakes in what it responds to reads in JSON: another default in Deployments, a field that Services do
// not have any more, and another status for ConfigMaps that do not exist.
package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/catena-dev/catena/plugins/builtin"
	"github.com/catena-dev/catena/sdk"
)

func main() {
	core := builtin.Core()
	right := core.New
	core.New = func(env *sdk.Env) (http.Handler, error) {
		handler, err := right(env)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(handler, w, r) }), err
	}
	sdk.Main(core)
}

func serve(core http.Handler, w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || r.Header.Get("Accept") != "application/json" || r.URL.Query().Has("watch") {
		core.ServeHTTP(w, r)
		return
	}
	kept := &response{ResponseWriter: w, code: http.StatusOK}
	core.ServeHTTP(kept, r)
	body := kept.body.Bytes()
	if kept.code == http.StatusNotFound && strings.Contains(r.URL.Path, "/configmaps/") {
		kept.code = http.StatusGone
	}
	var object map[string]any
	if kept.code == http.StatusOK && json.Unmarshal(body, &object) == nil {
		change(object)
		items, _ := object["items"].([]any)
		for _, item := range items {
			if item, ok := item.(map[string]any); ok {
				item["kind"] = strings.TrimSuffix(object["kind"].(string), "List")
				change(item)
				delete(item, "kind")
			}
		}
		body, _ = json.Marshal(object)
	}
	w.Header().Del("Content-Length")
	w.WriteHeader(kept.code)
	_, _ = w.Write(body)
}

func change(object map[string]any) {
	spec, _ := object["spec"].(map[string]any)
	switch object["kind"] {
	case "Deployment":
		spec["revisionHistoryLimit"] = 3
	case "Service":
		delete(spec, "sessionAffinity")
	}
}

// response keeps a response until it is changed.
type response struct {
	http.ResponseWriter
	code int
	body bytes.Buffer
}

func (w *response) WriteHeader(code int)        { w.code = code }
func (w *response) Write(b []byte) (int, error) { return w.body.Write(b) }
func (w *response) Flush()                      {}
