package sdk_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apiserver/pkg/server/statusz/api/v1beta1"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// page returns a debug page of a stage: the first message with the whole body.
func page(t *testing.T, stage *stagetest.Stage, req *stagev1.GetDebugPageRequest) (*stagev1.GetDebugPageResponse, error) {
	t.Helper()
	stream, err := stage.RPC.GetDebugPage(t.Context(), req)
	if err != nil {
		return nil, err
	}
	whole := &stagev1.GetDebugPageResponse{}
	for first := true; ; first = false {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return whole, nil
		}
		if err != nil {
			return nil, err
		}
		if first {
			whole.Code, whole.ContentType = piece.GetCode(), piece.GetContentType()
		}
		whole.Body = append(whole.Body, piece.GetBody()...)
	}
}

func TestProfiles(t *testing.T) { // not parallel: one CPU profile at a time
	stage := stagetest.Start(t, sdk.Stage{Name: "profiled", New: func(*sdk.Env) (http.Handler, error) { return nil, nil }}, stagetest.Options{})
	for _, c := range []struct{ page, query string }{{"pprof/heap", "gc=1"}, {"pprof/goroutine", ""}, {"pprof/profile", "seconds=0.01"}, {"pprof/trace", "seconds=0.01"}} {
		got, err := page(t, stage, &stagev1.GetDebugPageRequest{Page: c.page, Query: c.query})
		if err != nil {
			t.Errorf("%s: %v", c.page, err)
			continue
		}
		body := got.GetBody()
		if zip, err := gzip.NewReader(bytes.NewReader(body)); err == nil {
			body, _ = io.ReadAll(zip)
		} else if c.page != "pprof/trace" {
			t.Errorf("%s is not compressed: %v", c.page, err)
		}
		if len(body) == 0 {
			t.Errorf("%s is empty", c.page)
		}
	}
	got, err := page(t, stage, &stagev1.GetDebugPageRequest{Page: "pprof/goroutine", Query: "debug=2"})
	if err != nil || !strings.Contains(string(got.GetBody()), "TestProfiles") || !strings.HasPrefix(got.GetContentType(), "text/plain") {
		t.Errorf("stacks: %v, %v", got, err)
	}
	for _, unknown := range []string{"pprof/nothing", "pprof/", "flagz", ""} {
		if _, err := page(t, stage, &stagev1.GetDebugPageRequest{Page: unknown}); status.Code(err) != codes.NotFound {
			t.Errorf("page %q: %v", unknown, err)
		}
	}
}

// A stage that has no statusz of its own has the one of the SDK, in the form of Kubernetes' components.
func TestStatusz(t *testing.T) {
	t.Parallel()
	stage := stagetest.Start(t, sdk.Stage{Name: "plain", Version: "v1.2.3", New: func(*sdk.Env) (http.Handler, error) { return nil, nil }}, stagetest.Options{})
	got, err := page(t, stage, &stagev1.GetDebugPageRequest{Page: "statusz"})
	if err != nil || !strings.HasPrefix(got.GetContentType(), "text/plain") || !strings.Contains(string(got.GetBody()), "Binary version: v1.2.3\n") {
		t.Errorf("%v, %v", got, err)
	}
	got, err = page(t, stage, &stagev1.GetDebugPageRequest{Page: "statusz", Accept: "application/json; v=v1beta1; g=config.k8s.io; as=Statusz, text/plain"})
	if err != nil || got.GetContentType() != "application/json;v=v1beta1;g=config.k8s.io;as=Statusz" {
		t.Fatalf("%v, %v", got, err)
	}
	var s v1beta1.Statusz
	d := json.NewDecoder(bytes.NewReader(got.GetBody()))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		t.Fatal(err)
	}
	if s.Kind != "Statusz" || s.APIVersion != "config.k8s.io/v1beta1" || s.Name != "plain" || s.BinaryVersion != "v1.2.3" || s.GoVersion != runtime.Version() ||
		time.Since(s.StartTime.Time) > time.Minute || !slices.Contains(s.Paths, "pprof/heap") {
		t.Errorf("%+v", s)
	}
}

func TestDebugPages(t *testing.T) {
	t.Parallel()
	stage := stagetest.Start(t, sdk.Stage{Name: "paged", New: func(env *sdk.Env) (http.Handler, error) {
		env.DebugPage("statusz", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/x-test")
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, r.URL.String()+" "+r.Header.Get("Accept")+strings.Repeat(" ", 1<<20))
		}))
		env.DebugPage("flagz", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("no flags") }))
		return nil, nil
	}}, stagetest.Options{})
	got, err := page(t, stage, &stagev1.GetDebugPageRequest{Page: "statusz", Query: "a=b", Accept: "x/y"})
	if err != nil || got.GetCode() != http.StatusTeapot || got.GetContentType() != "text/x-test" || !strings.HasPrefix(string(got.GetBody()), "/statusz?a=b x/y ") || len(got.GetBody()) < 1<<20 {
		t.Errorf("got %d %s, %d bytes, %v", got.GetCode(), got.GetContentType(), len(got.GetBody()), err)
	}
	if _, err := page(t, stage, &stagev1.GetDebugPageRequest{Page: "flagz"}); err == nil {
		t.Error("a page that panics is no error")
	}
}

func TestLogLevelChanges(t *testing.T) {
	t.Parallel()
	var env *sdk.Env
	stage := stagetest.Start(t, sdk.Stage{Name: "logs", New: func(e *sdk.Env) (http.Handler, error) {
		env = e
		return nil, nil
	}}, stagetest.Options{})
	named := env.Log.Named("part").With("a", 1)
	for _, level := range []string{"error", "debug"} {
		if _, err := stage.RPC.SetLogLevel(t.Context(), &stagev1.SetLogLevelRequest{Level: level}); err != nil {
			t.Fatal(err)
		}
		if got := named.IsDebug(); got != (level == "debug") {
			t.Errorf("at level %s, debug is %t", level, got)
		}
	}
	if _, err := stage.RPC.SetLogLevel(t.Context(), &stagev1.SetLogLevelRequest{Level: "loud"}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a level that is none: %v", err)
	}
}
