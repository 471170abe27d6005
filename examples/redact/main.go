// Stage redact shows the keys of Secrets and not their values, to all but some groups.
package main

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strings"

	"github.com/catena-dev/catena/sdk"
)

// Config of the stage, with the defaults in main.
type Config struct {
	Groups []string `json:"groups" jsonschema:"groups whose members see the values"`
}

// redacted stands for each value: "redacted" in base64, as values are.
const redacted = "cmVkYWN0ZWQ="

func main() {
	sdk.Main(sdk.Stage{Name: "redact", Summary: "shows the keys of Secrets, not their values", New: redact,
		// The server's own components, and its operators.
		Config: Config{Groups: []string{
			"system:masters", "system:catena:stages", "system:nodes", "system:serviceaccounts:kube-system",
		}},
		Needs: &sdk.Needs{Claims: claims()}})
}

// claims cover every path of Secrets: with and without a namespace, and the old ones of watches.
func claims() []sdk.Claim {
	return []sdk.Claim{
		sdk.Prefix("/api/v1/secrets"), sdk.Prefix("/api/v1/namespaces/*/secrets"),
		sdk.Prefix("/api/v1/watch/secrets"), sdk.Prefix("/api/v1/watch/namespaces/*/secrets"),
	}
}

func redact(env *sdk.Env) (http.Handler, error) {
	var cfg Config
	if err := env.Config(&cfg); err != nil {
		return nil, err
	}
	env.SetClaims(claims()...)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch info := sdk.RequestInfoFrom(r.Context()); {
		case sdk.UserFrom(r.Context()).In(cfg.Groups...):
			env.Next.ServeHTTP(w, r)
		case info == nil || info.Verb == "update" || info.Verb == "patch":
			sdk.Error(w, "you see no values of Secrets, and would overwrite them", http.StatusForbidden)
		default:
			pass(env, w, r)
		}
	}), nil
}

// pass gets the response in JSON, whatever else the client takes, and passes it on without the values.
func pass(env *sdk.Env, w http.ResponseWriter, r *http.Request) {
	r = r.Clone(r.Context())
	r.Header.Set("Accept", inJSON(r.Header.Get("Accept")))
	r.Header.Del("Accept-Encoding")
	resp, err := env.Call.RoundTrip(r)
	if err != nil {
		env.Log.Warn("a request could not be passed on", "path", r.URL.Path, "error", err)
		sdk.Error(w, "the request could not be passed on", http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	maps.Copy(w.Header(), resp.Header)
	w.Header().Del("Content-Length")
	w.WriteHeader(resp.StatusCode)
	for body := json.NewDecoder(resp.Body); err == nil; { // of a watch, one event after the other
		var object map[string]any
		if err = body.Decode(&object); err == nil {
			hide(object)
			err = json.NewEncoder(w).Encode(object)
			_ = http.NewResponseController(w).Flush()
		}
	}
	if err != io.EOF {
		panic(http.ErrAbortHandler) // what cannot be read is not shown
	}
}

// inJSON returns the media types of a header Accept that are JSON.
func inJSON(accept string) string {
	var types []string
	for t := range strings.SplitSeq(accept, ",") {
		if t = strings.TrimSpace(t); strings.HasPrefix(t, "application/json") {
			types = append(types, t)
		}
	}
	return strings.Join(append(types, "application/json"), ",")
}

// hide takes the values out of a Secret, a list, a table or an event of a watch.
func hide(object map[string]any) {
	for _, key := range []string{"data", "stringData"} {
		values, _ := object[key].(map[string]any)
		for name := range values {
			values[name] = redacted
		}
	}
	if metadata, ok := object["metadata"].(map[string]any); ok {
		annotations, _ := metadata["annotations"].(map[string]any)
		delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	}
	if inner, ok := object["object"].(map[string]any); ok { // of an event, and of a row of a table
		hide(inner)
	}
	for _, key := range []string{"items", "rows"} {
		list, _ := object[key].([]any)
		for _, item := range list {
			if inner, ok := item.(map[string]any); ok {
				hide(inner)
			}
		}
	}
}
