package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/sdk/apistage/apitest"
	"github.com/catena-dev/catena/sdk/stagetest"
)

const backups = "/apis/backup.example.com/v1/namespaces/default/backups"

func backup(name, configMap, ifMissing string) string {
	return fmt.Sprintf(`{"apiVersion":"backup.example.com/v1","kind":"Backup","metadata":{"name":%q},`+
		`"spec":{"configMap":%q,"ifMissing":%q}}`, name, configMap, ifMissing)
}

func do(t *testing.T, stage *stagetest.Stage, method, path, contentType, body string) stagetest.Answer {
	t.Helper()
	header := http.Header{"Content-Type": {contentType}}
	return stage.Do(t, stagetest.Call{Method: method, Path: path, Body: body, Header: header})
}

func create(t *testing.T, stage *stagetest.Stage, body string) stagetest.Answer {
	t.Helper()
	return do(t, stage, http.MethodPost, backups, "application/json", body)
}

// core serves one ConfigMap.
func core(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/api/v1/namespaces/default/configmaps/colors" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"colors","resourceVersion":"7"},`+
		`"data":{"sky":"blue"}}`)
}

// The worker gets the objects of its own group from the stage that is tested, and ConfigMaps from Options.API.
func TestWorker(t *testing.T) {
	t.Parallel()
	stage := apitest.Start(t, group(), stagetest.Options{API: http.HandlerFunc(core)})
	for _, body := range []string{
		backup("done", "colors", ""), backup("failed", "none", "Fail"), backup("waiting", "none", "Wait"),
	} {
		if got := create(t, stage, body); got.Status != http.StatusCreated {
			t.Fatalf("%d %s", got.Status, got.Body)
		}
	}
	for name, want := range map[string]string{
		"done":   `"status":{"phase":"Done","resourceVersion":"7","data":{"sky":"blue"}}`,
		"failed": `"status":{"phase":"Failed"}`,
	} {
		for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			got := stage.Get(t, backups+"/"+name)
			if strings.Contains(got.Body, want) {
				break
			}
			if time.Since(begun) > time.Minute {
				t.Fatalf("%s: %s, want %s", name, got.Body, want)
			}
		}
	}
	if got := stage.Get(t, backups+"/waiting"); strings.Contains(got.Body, "phase") {
		t.Errorf("copied what does not exist: %s", got.Body)
	}
}

func TestGroup(t *testing.T) {
	t.Parallel()
	stage := apitest.Start(t, group(), stagetest.Options{})
	for body, want := range map[string]string{
		backup("bad", "", ""):             "spec.configMap: Required value",
		backup("bad", "colors", "Perish"): `supported values: \"Wait\", \"Fail\"`,
	} {
		got := create(t, stage, body)
		if got.Status != http.StatusUnprocessableEntity || !strings.Contains(got.Body, want) {
			t.Errorf("%d %s, want %q", got.Status, got.Body, want)
		}
	}
	got := create(t, stage, backup("good", "colors", ""))
	if got.Status != http.StatusCreated || !strings.Contains(got.Body, `"ifMissing":"Wait"`) {
		t.Errorf("%d %s", got.Status, got.Body)
	}
	got = do(t, stage, http.MethodPatch, backups+"/good", "application/merge-patch+json", `{"spec":{"configMap":"other"}}`)
	if got.Status != http.StatusUnprocessableEntity || !strings.Contains(got.Body, "field is immutable") {
		t.Errorf("another ConfigMap: %d %s", got.Status, got.Body)
	}
	for selector, want := range map[string]bool{"colors": true, "other": false} {
		got := stage.Get(t, backups+"?fieldSelector=spec.configMap%3D"+selector)
		if strings.Contains(got.Body, `"name":"good"`) != want {
			t.Errorf("%s: %d %s", selector, got.Status, got.Body)
		}
	}
}
