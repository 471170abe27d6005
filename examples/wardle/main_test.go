package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/sdk/apistage/apitest"
	"github.com/catena-dev/catena/sdk/stagetest"
)

// The whole stage without its admission plugin is at most sixty lines.
func TestLines(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(text), "\n"); lines > 60 {
		t.Errorf("main.go has %d lines", lines)
	}
}

// patience is how long the plugin has to see a fischer.
const patience = time.Minute

func call(t *testing.T, stage *stagetest.Stage, method, path, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, stage.URL+"/apis/wardle.example.com/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func flunder(name, reference string) string {
	return fmt.Sprintf(`{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder","metadata":{"name":%q},"spec":{"reference":%q}}`, name, reference)
}

func TestWardle(t *testing.T) {
	stage := apitest.Start(t, group(), stagetest.Options{})
	const flunders = "v1alpha1/namespaces/default/flunders"
	if code, body := call(t, stage, http.MethodPost, flunders, flunder("one", "two")); code != http.StatusCreated {
		t.Fatalf("status %d: %s", code, body)
	}
	// The other version has the reference in another field; its type is a default.
	_, body := call(t, stage, http.MethodGet, "v1beta1/namespaces/default/flunders/one", "")
	var converted struct{ Spec map[string]string }
	if err := json.Unmarshal([]byte(body), &converted); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	if converted.Spec["flunderReference"] != "two" || converted.Spec["referenceType"] != "Flunder" {
		t.Errorf("in v1beta1 it is %v", converted.Spec)
	}
	if code, body := call(t, stage, http.MethodGet, "v1beta1/fischers", ""); code != http.StatusNotFound {
		t.Errorf("fischers are not in v1beta1: status %d: %s", code, body)
	}
	if code, body := call(t, stage, http.MethodPost, "v1alpha1/fischers", `{"apiVersion":"wardle.example.com/v1alpha1","kind":"Fischer","metadata":{"name":"strict"},"disallowedFlunders":["banned"]}`); code != http.StatusCreated {
		t.Fatalf("status %d: %s", code, body)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		code, body := call(t, stage, http.MethodPost, flunders+"?dryRun=All", flunder("banned", ""))
		if code == http.StatusForbidden && strings.Contains(body, "this name may not be used") {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("the flunder is not banned: status %d: %s", code, body)
		}
	}
	if code, body := call(t, stage, http.MethodPost, flunders, flunder("allowed", "")); code != http.StatusCreated {
		t.Errorf("status %d: %s", code, body)
	}
}
