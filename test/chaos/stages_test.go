package chaos

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk"
)

// The test binary is also the binary of the middleware stages: under the name
// catena-stage-NAME it is the stage NAME.
func TestMain(m *testing.M) {
	if name, ok := strings.CutPrefix(filepath.Base(os.Args[0]), "catena-stage-"); ok {
		sdk.Main(sdk.Stage{Name: name, Version: "v1", Config: passerConfig{}, New: newPasser})
		return
	}
	os.Exit(m.Run())
}

// passer is a middleware: it gets every request, and adds its name to the responses to
// requests for ConfigMaps.
type passer struct {
	env    *sdk.Env
	config passerConfig
}

type passerConfig struct {
	Greeting string `json:"greeting"`
	// Broken makes the stage refuse to start.
	Broken bool `json:"broken"`
}

func newPasser(env *sdk.Env) (http.Handler, error) {
	p := &passer{env: env}
	if err := env.Config(&p.config); err != nil {
		return nil, err
	}
	if p.config.Broken {
		return nil, fmt.Errorf("broken as configured")
	}
	env.ClaimPrefix("/")
	return p, nil
}

// forged is in every identity that a client makes up.
const forged = "forged"

func (p *passer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if u := sdk.UserFrom(r.Context()); u == nil || strings.Contains(u.Name, forged) || strings.Contains(fmt.Sprint(r.Header), forged) {
		p.env.Log.Error("forged identity", "user", u, "header", fmt.Sprint(r.Header))
	}
	if strings.Contains(r.URL.Path, "/configmaps") && r.URL.Query().Get("watch") == "" {
		w = &named{ResponseWriter: w, name: p.env.Name + " " + p.config.Greeting}
	}
	p.env.Next.ServeHTTP(w, r)
}

// named adds a name to the head of a response.
type named struct {
	http.ResponseWriter
	name string
}

func (w *named) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *named) WriteHeader(code int) {
	w.Header().Add("X-Passed", w.name)
	w.ResponseWriter.WriteHeader(code)
}
