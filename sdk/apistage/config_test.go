package apistage_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/apistage"
	"github.com/catena-dev/catena/sdk/apistage/apitest"
	"github.com/catena-dev/catena/sdk/stagetest"
)

// mostReplicas is the configuration of a group.
type mostReplicas struct {
	Most int32 `json:"most"`
}

// configured makes a stage of a group in the way of docs/apistage.md.
func configured() sdk.Stage {
	group := func(config mostReplicas) apistage.Group {
		return apistage.Group{Name: "widgets", APIVersion: "widgets.test/v1", Resources: []apistage.Resource{apistage.Kind[*Widget]{
			List: &WidgetList{},
			Validate: func(_ context.Context, w, _ *Widget) field.ErrorList {
				if w.Spec.Replicas > config.Most {
					return field.ErrorList{field.Invalid(field.NewPath("spec", "replicas"), w.Spec.Replicas, "too many")}
				}
				return nil
			},
		}}}
	}
	stage := group(mostReplicas{}).Stage()
	stage.Config = mostReplicas{Most: 20}
	stage.New = func(env *sdk.Env) (http.Handler, error) {
		var config mostReplicas
		if err := env.Config(&config); err != nil {
			return nil, err
		}
		return group(config).Stage().New(env)
	}
	return stage
}

// A group has configuration as any stage has: with defaults, in what it validates.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	for config, most := range map[*mostReplicas]int{nil: 20, {Most: 3}: 3} {
		opts := stagetest.Options{Flags: apitest.Flags(apitest.Store(t))}
		if config != nil {
			opts.Config = config
		}
		stage := stagetest.Start(t, configured(), opts)
		stage.RunPostStartHooks(t)
		for replicas, want := range map[int]int{most: http.StatusCreated, most + 1: http.StatusUnprocessableEntity} {
			body, err := json.Marshal(map[string]any{
				"apiVersion": "widgets.test/v1", "kind": "Widget", "metadata": map[string]any{"name": "first"},
				"spec": map[string]any{"replicas": replicas, "tags": []string{}},
			})
			if err != nil {
				t.Fatal(err)
			}
			got := stage.Do(t, stagetest.Call{
				Method: http.MethodPost, Path: "/apis/widgets.test/v1/namespaces/default/widgets", Body: string(body),
				Header: http.Header{"Content-Type": {"application/json"}},
			})
			if got.Status != want {
				t.Errorf("at most %d: %d replicas: %d %s", most, replicas, got.Status, got.Body)
			}
		}
	}
}

// A group with nothing to configure can say so.
func TestConfigurationOfNothing(t *testing.T) {
	t.Parallel()
	stage := widgets().Stage()
	stage.Config = struct{}{}
	problems := stagetest.Launch(t, stage, stagetest.Options{}).Problems(t, map[string]any{"wrong": 1})
	if len(problems) != 1 || !strings.HasPrefix(problems[0], "wrong: unknown key") {
		t.Errorf("%q, want an unknown key", problems)
	}
}

// The configured group of docs/apistage.md compiles, with the types of its first example.
func TestConfigurationOfTheDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/apistage.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 3 {
		t.Fatalf("%d blocks of Go, want types, stage and configured stage", len(blocks))
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	program := `package cooks

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/catena-dev/catena/examples/cooks/v1"
	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/apistage"
)

` + blocks[2][1]
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(root, "examples/cooks/v1/types.go"): write("types.go", blocks[0][1]),
		filepath.Join(root, "examples/cooks/stage.go"):    write("stage.go", program),
	}})
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-overlay", write("overlay.json", string(overlay)), "./examples/cooks")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
