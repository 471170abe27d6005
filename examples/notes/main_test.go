package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/examples/notes/v1"
	"github.com/catena-dev/catena/sdk/apistage/apitest"
	"github.com/catena-dev/catena/sdk/stagetest"
)

// patience bounds what a test waits for.
const patience = time.Minute

// Kind, group and main function are at most sixty lines; the storage comes on top.
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

var notes = schema.GroupVersionResource{Group: "notes.example.com", Version: "v1", Resource: "notes"}

func served(t *testing.T) (*stagetest.Stage, dynamic.Interface) {
	t.Helper()
	stage := apitest.Start(t, group(), stagetest.Options{})
	return stage, dynamic.NewForConfigOrDie(&rest.Config{Host: stage.URL, QPS: -1})
}

func note(name, text string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "notes.example.com/v1", "kind": "Note",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"text": text},
	}}
}

func TestVerbs(t *testing.T) {
	stage, all := served(t)
	client, ctx := all.Resource(notes).Namespace("default"), t.Context()
	made, err := client.Create(ctx, note("one", "first line\nsecond"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if title, _, _ := unstructured.NestedString(made.Object, "spec", "title"); title != "first line" {
		t.Errorf("title is %q", title)
	}
	if _, err := client.Create(ctx, note("one", "x"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("created twice: %v", err)
	}
	if _, err := client.Create(ctx, note("none", ""), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("empty: %v", err)
	}
	if _, err := client.Create(ctx, note("dry", "x"), metav1.CreateOptions{DryRun: []string{"All"}}); err != nil {
		t.Error(err)
	}
	if _, err := client.Get(ctx, "dry", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after a dry run: %v", err)
	}
	changed := made.DeepCopy()
	_ = unstructured.SetNestedField(changed.Object, "other", "spec", "title")
	if _, err := client.Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := client.Update(ctx, changed, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("update of an old version: %v", err)
	}
	if _, err := client.Apply(ctx, "two", note("two", "applied"), metav1.ApplyOptions{FieldManager: "test"}); err != nil {
		t.Error(err)
	}
	if list, err := client.List(ctx, metav1.ListOptions{FieldSelector: "spec.title=applied"}); err != nil || len(list.Items) != 1 {
		t.Errorf("selected are %v (%v)", list, err)
	}
	resp, err := http.Get(stage.URL + "/apis/notes.example.com/v1/namespaces/default/notes/one/text")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); string(text) != "first line\nsecond\n" {
		t.Errorf("text is %q", text)
	}
	wrong := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("other")}
	if err := client.Delete(ctx, "one", wrong); !apierrors.IsConflict(err) {
		t.Errorf("delete of another: %v", err)
	}
	if err := client.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	if list, err := client.List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
		t.Errorf("left are %v (%v)", list, err)
	}
}

func TestFinalizers(t *testing.T) {
	_, all := served(t)
	client, ctx := all.Resource(notes).Namespace("default"), t.Context()
	o := note("held", "x")
	o.SetFinalizers([]string{"test/held"})
	if _, err := client.Create(ctx, o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := client.Delete(ctx, "held", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	held, err := client.Get(ctx, "held", metav1.GetOptions{})
	if err != nil || held.GetDeletionTimestamp() == nil {
		t.Fatalf("it is %v (%v)", held, err)
	}
	held.SetFinalizers(nil)
	if _, err := client.Update(ctx, held, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get(ctx, "held", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("without finalizers: %v", err)
	}
}

// An informer, which asks for initial events, is what clients really use.
func TestInformer(t *testing.T) {
	_, all := served(t)
	client, ctx := all.Resource(notes), t.Context()
	if _, err := client.Namespace("a").Create(ctx, note("before", "x"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	informer := dynamicinformer.NewDynamicSharedInformerFactory(all, 0).ForResource(notes)
	go informer.Informer().RunWithContext(ctx)
	if _, err := client.Namespace("b").Create(ctx, note("after", "x"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		_, first := informer.Lister().ByNamespace("a").Get("before")
		_, second := informer.Lister().ByNamespace("b").Get("after")
		if first == nil && second == nil && informer.Informer().HasSynced() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not seen: %v, %v", first, second)
		}
	}
}

// A watch sees objects come and go that it selects, and resumes at any version that is
// still known.
func TestWatch(t *testing.T) {
	_, all := served(t)
	client := all.Resource(notes).Namespace("default")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	empty, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, title := range []string{"no", "yes", "no"} {
		o := note("switch", "x")
		_ = unstructured.SetNestedField(o.Object, title, "spec", "title")
		if _, err := client.Apply(ctx, "switch", o, metav1.ApplyOptions{FieldManager: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	w, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: empty.GetResourceVersion(), FieldSelector: "spec.title=yes"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for _, want := range []watch.EventType{watch.Added, watch.Deleted} {
		if event := <-w.ResultChan(); event.Type != want {
			t.Fatalf("event is %v, want %s", event, want)
		}
	}
	if _, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: "soon"}); !apierrors.IsBadRequest(err) {
		t.Errorf("error is %v", err)
	}
}

// Writers of two processes, as there are at a swap, see each other's versions.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/notes.db"
	var dbs [2]*database
	for i := range dbs {
		db, err := openDatabase(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		dbs[i] = db
	}
	errs := make(chan error)
	const each = 50
	for i, db := range dbs {
		go func() {
			for n := range each {
				n := &v1.Note{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d-%d", i, n)}}
				if err := db.write(t.Context(), nil, n); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range dbs {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	changes, lost, err := dbs[0].since(t.Context(), 1)
	if err != nil || lost || len(changes) != 2*each {
		t.Fatalf("%d changes, lost is %v (%v)", len(changes), lost, err)
	}
	read, err := dbs[1].get(t.Context(), "", "n0-0")
	if err != nil {
		t.Fatal(err)
	}
	if err := dbs[0].write(t.Context(), read, nil); err != nil {
		t.Fatal(err)
	}
	if err := dbs[1].write(t.Context(), read, read); err == nil {
		t.Error("a note that is gone can be written")
	}
}

// Changes older than the history are reported as lost, so that clients list again.
func TestHistory(t *testing.T) {
	t.Parallel()
	db, err := openDatabase(t.Context(), t.TempDir()+"/notes.db")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	n := &v1.Note{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	if err := db.write(t.Context(), nil, n); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "UPDATE sqlite_sequence SET seq = seq + ?", history); err != nil {
		t.Fatal(err)
	}
	if err := db.write(t.Context(), n, n); err != nil {
		t.Fatal(err)
	}
	for revision, want := range map[int64]bool{1: true, history + 1: true, history + 2: false} {
		if _, lost, err := db.since(t.Context(), revision); err != nil || lost != want {
			t.Errorf("since %s: lost is %v, want %v (%v)", strconv.FormatInt(revision, 10), lost, want, err)
		}
	}
}
