package apiserver_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/component-base/tracing"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
	"github.com/catena-dev/catena/sdk/stagev1"
	"github.com/catena-dev/catena/sdk/stagev1/header"
)

func TestContextCarriesWhatTheFiltersFound(t *testing.T) {
	t.Parallel()
	received := time.UnixMicro(1_700_000_000_123_456)
	stage := stagetest.Start(t, apiStage(handle(func(w http.ResponseWriter, r *http.Request) {
		want := &user.DefaultInfo{Name: "jürgen", UID: "7", Groups: []string{"a", "b"}, Extra: map[string][]string{"odd/Ключ": {"1", "2"}}}
		u, _ := request.UserFrom(r.Context())
		if got := (&user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra()}); !reflect.DeepEqual(got, want) {
			t.Errorf("user is %+v, want %+v", got, want)
		}
		if got := fmt.Sprintf("%+v", u); got != want.Name {
			t.Errorf("user is printed as %q", got)
		}
		if got, _ := request.ReceivedTimestampFrom(r.Context()); !got.Equal(received) {
			t.Errorf("received at %v, want %v", got, received)
		}
		if got, _ := audit.AuditIDFrom(r.Context()); got != "the-id" {
			t.Errorf("audit id is %q", got)
		}
		if info, ok := request.RequestInfoFrom(r.Context()); !ok || info.Verb != "get" || info.Path != "/own" {
			t.Errorf("request info is %+v", info)
		}
		if deadline, ok := r.Context().Deadline(); !ok || time.Until(deadline) > time.Minute {
			t.Errorf("deadline is %v (%v)", deadline, ok)
		}
		if got := request.ServerShutdownSignalFrom(r.Context()); got == nil {
			t.Error("no server shutdown signal")
		}
		for name := range r.Header {
			if strings.HasPrefix(name, stagev1.HeaderPrefix) {
				t.Errorf("the handler sees the host's header %s", name)
			}
		}
		traced := http.Header{}
		tracing.Propagators().Inject(r.Context(), headerCarrier(traced))
		if got := traced.Get("Traceparent"); !strings.HasPrefix(got, "00-0af7651916cd43dd8448eb211c80319c-") {
			t.Errorf("trace is %q", got)
		}
	})), stagetest.Options{})
	ask(t, stage, "/own", map[string]string{
		stagev1.HeaderUser:     `{"name":"j\u00fcrgen","uid":"7","groups":["a","b"],"extra":{"odd/\u041a\u043b\u044e\u0447":["1","2"]}}`,
		stagev1.HeaderReceived: "1700000000123456",
		stagev1.HeaderTimeout:  "50000",
		"Audit-ID":             "the-id",
		"Traceparent":          "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	})
}

type headerCarrier http.Header

func (c headerCarrier) Get(key string) string { return http.Header(c).Get(key) }
func (c headerCarrier) Set(key, value string) { http.Header(c).Set(key, value) }
func (c headerCarrier) Keys() []string        { return nil }

var v1 = schema.GroupVersion{Version: "v1"}

// testSerializer encodes the objects of these tests.
func testSerializer() runtime.NegotiatedSerializer {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, v1)
	scheme.AddUnversionedTypes(v1, &metav1.Status{})
	scheme.AddKnownTypes(v1, &metav1.PartialObjectMetadata{})
	return serializer.NewCodecFactory(scheme)
}

// audited does what Kubernetes' handlers do for the audit log.
func audited(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	audit.AddAuditAnnotation(ctx, "policy.example/warn", "größer 😀")
	audit.LogRequestPatch(ctx, []byte(`{"metadata":{"name":"é"}}`))
	status := &metav1.Status{Status: metav1.StatusFailure, Message: "nein\n", Code: http.StatusConflict}
	audit.LogResponseObject(ctx, status, v1, testSerializer())
	w.WriteHeader(http.StatusConflict)
}

func TestAuditGoesBackToTheHost(t *testing.T) {
	t.Parallel()
	stage := stagetest.Start(t, apiStage(handle(audited)), stagetest.Options{})
	type object = map[string]any
	for level, want := range map[string]object{
		"":     nil,
		"None": nil,
		"Metadata": {
			"annotations":    object{"policy.example/warn": "größer 😀"},
			"responseStatus": object{"metadata": object{}, "status": "Failure", "message": "nein\n", "code": 409.0},
		},
		"RequestResponse;omitManagedFields": {
			"annotations":    object{"policy.example/warn": "größer 😀"},
			"requestObject":  object{"metadata": object{"name": "é"}},
			"responseStatus": object{"metadata": object{}, "status": "Failure", "message": "nein\n", "code": 409.0},
			"responseObject": object{"metadata": object{}, "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "nein\n", "code": 409.0},
		},
	} {
		headers := map[string]string{}
		if level != "" {
			headers[stagev1.HeaderAuditLevel] = level
		}
		response := ask(t, stage, "/own", headers)
		if response.StatusCode != http.StatusConflict {
			t.Errorf("%s: %s", level, response.Status)
		}
		value := response.Header.Get(stagev1.HeaderAudit)
		for _, c := range value {
			if c >= 0x7f {
				t.Errorf("%s: %s has characters beyond ASCII: %s", level, stagev1.HeaderAudit, value)
				break
			}
		}
		var got object
		if value != "" {
			if err := json.Unmarshal([]byte(value), &got); err != nil {
				t.Errorf("%s: %v", level, err)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: audit is\n%v, want\n%v", level, got, want)
		}
	}
}

// What Kubernetes' handlers note when they have responded goes to the host with the head of a short response, and behind the
// body of a long one.
func TestLateAnnotationsAndLatencies(t *testing.T) {
	t.Parallel()
	for _, size := range []int{10, 5000} {
		stage := stagetest.Start(t, apiStage(handle(func(w http.ResponseWriter, r *http.Request) {
			audit.AddAuditAnnotation(r.Context(), "early", "1")
			request.TrackStorageLatency(r.Context(), 5)
			_, _ = w.Write(make([]byte, size))
			audit.AddAuditAnnotation(r.Context(), "late", "2")
			request.TrackStorageLatency(r.Context(), 7)
		})), stagetest.Options{})
		response := ask(t, stage, "/own", map[string]string{stagev1.HeaderAuditLevel: "Metadata"})
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			t.Fatal(err)
		}
		got := []string{response.Header.Get(stagev1.HeaderAudit), response.Header.Get(stagev1.HeaderLatency), response.Trailer.Get(stagev1.HeaderAudit), response.Trailer.Get(stagev1.HeaderLatency)}
		want := []string{`{"annotations":{"early":"1","late":"2"}}`, "etcd=12", "", ""}
		if size > 2048 {
			want = []string{`{"annotations":{"early":"1"}}`, "etcd=5", `{"annotations":{"late":"2"}}`, "etcd=7"}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d bytes: header and trailer are %q, want %q", size, got, want)
		}
	}
}

// TestAuditTellsTheObjectOfABody is about a name that the URL of a create does not have.
func TestAuditTellsTheObjectOfABody(t *testing.T) {
	t.Parallel()
	stage := stagetest.Start(t, apiStage(handle(func(w http.ResponseWriter, r *http.Request) {
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "made"}}
		audit.LogRequestObject(r.Context(), object, v1, v1.WithResource("things"), "sub", testSerializer())
	})), stagetest.Options{})
	response := ask(t, stage, "/own", map[string]string{stagev1.HeaderAuditLevel: "Metadata"})
	want := `{"objectRef":{"resource":"things","namespace":"ns","name":"made","apiVersion":"v1","subresource":"sub"}}`
	if got := response.Header.Get(stagev1.HeaderAudit); got != want {
		t.Errorf("audit is %s, want %s", got, want)
	}
}

func TestWarningsAndLatencies(t *testing.T) {
	t.Parallel()
	stage := stagetest.Start(t, apiStage(handle(func(w http.ResponseWriter, r *http.Request) {
		warning.AddWarning(r.Context(), "", "old version")
		request.TrackStorageLatency(r.Context(), 1500*time.Microsecond)
		request.TrackDecodeLatency(r.Context(), 7)
	})), stagetest.Options{})
	response := ask(t, stage, "/own", map[string]string{stagev1.HeaderAuditLevel: "Metadata"})
	if got := response.Header.Get("Warning"); !strings.Contains(got, "old version") {
		t.Errorf("warning is %q", got)
	}
	// The handler writes nothing, so that the head is written after it.
	if got, want := response.Header.Get(stagev1.HeaderLatency), "etcd=1500000,decode-response-object=7"; got != want {
		t.Errorf("latencies are %q, want %q", got, want)
	}
}

// A request has the time that it has waited in the host's queues, which Kubernetes' service level indicators leave out.
func TestTimeInQueues(t *testing.T) {
	t.Parallel()
	stage := stagetest.Start(t, apiStage(handle(func(w http.ResponseWriter, r *http.Request) {
		trackers, _ := request.LatencyTrackersFrom(r.Context())
		fmt.Fprint(w, trackers.APFQueueWaitTracker.GetLatency())
	})), stagetest.Options{})
	for header, want := range map[string]string{"apf-queue-wait=7000000": "7ms", "": "0s", "nonsense": "0s"} {
		response := ask(t, stage, "/own", map[string]string{stagev1.HeaderLatency: header})
		if got, err := io.ReadAll(response.Body); err != nil || string(got) != want {
			t.Errorf("%q: the time in queues is %q (%v), want %q", header, got, err, want)
		}
	}
}

func TestWatchesAreToldToEnd(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	stage := stagetest.Start(t, apiStage(handle(func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		select {
		case <-request.ServerShutdownSignalFrom(r.Context()).ShuttingDown():
			w.WriteHeader(http.StatusNoContent)
		case <-r.Context().Done():
		}
	})), stagetest.Options{})
	drained := make(chan error, 1)
	go func() {
		<-begun
		_, err := stage.RPC.Drain(t.Context(), &stagev1.DrainRequest{})
		drained <- err
	}()
	if response := ask(t, stage, "/own", nil); response.StatusCode != http.StatusNoContent {
		t.Errorf("response is %s", response.Status)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
}

// Watches are not told to end all at once, but over the time that the host allows: here, nearly all of them have an
// hour.
func TestWatchesEndOverTime(t *testing.T) {
	t.Parallel()
	const watches = 50
	begun, toEnd := make(chan struct{}, watches), make(chan bool, watches)
	var draining <-chan struct{}
	api := apiStage(handle(func(_ http.ResponseWriter, r *http.Request) {
		signal := request.ServerShutdownSignalFrom(r.Context()).ShuttingDown()
		begun <- struct{}{}
		<-draining
		select {
		case <-signal:
			toEnd <- true
		default:
			toEnd <- false
		}
	}))
	build := api.New
	api.New = func(env *sdk.Env) (http.Handler, error) {
		draining = env.Draining()
		return build(env)
	}
	stage := stagetest.Start(t, api, stagetest.Options{})
	var clients sync.WaitGroup
	for range watches {
		clients.Go(func() { ask(t, stage, "/own", nil) })
		<-begun
	}
	clients.Go(func() { _, _ = stage.RPC.Drain(t.Context(), &stagev1.DrainRequest{Spread: durationpb.New(time.Hour)}) })
	defer clients.Wait()
	ended := 0
	for range watches {
		if <-toEnd {
			ended++
		}
	}
	if ended > watches/10 {
		t.Errorf("%d of %d watches are to end at once", ended, watches)
	}
}

// A watch that is not of the server's etcd promises nothing, whatever a server says to which the stage proxies it.
func TestWatchOfOthersPromisesNothing(t *testing.T) {
	t.Parallel()
	const path = "/apis/own.test/v1/things"
	stage := stagetest.Start(t, apiStage(func(server *genericapiserver.GenericAPIServer) {
		server.Handler.NonGoRestfulMux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if info, _ := request.RequestInfoFrom(r.Context()); info.Verb != "watch" {
				t.Errorf("the verb is %s", info.Verb)
			}
			w.Header().Set(stagev1.HeaderWatch, header.WatchResumable)
			w.Header().Set(http.TrailerPrefix+stagev1.HeaderWatch, header.WatchDraining)
			fmt.Fprintln(w, "an event")
			_ = http.NewResponseController(w).Flush()
		})
	}), stagetest.Options{})
	response := ask(t, stage, path+"?watch=1", map[string]string{stagev1.HeaderWatch: "true"})
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	if head, trailer := response.Header.Get(stagev1.HeaderWatch), response.Trailer.Get(stagev1.HeaderWatch); head+trailer != "" {
		t.Errorf("the head says %q, the trailer %q", head, trailer)
	}
}

// Where the host takes no message, objects come in the head of the response as long as they fit, and the request does not fail for them.
func TestLargeAuditPart(t *testing.T) {
	t.Parallel()
	for size, whole := range map[int]bool{32 << 10: true, 128 << 10: true, 2 << 20: false} {
		stage := stagetest.Start(t, apiStage(handle(func(w http.ResponseWriter, r *http.Request) {
			audit.LogRequestPatch(r.Context(), []byte(`"`+strings.Repeat("x", size)+`"`))
			w.WriteHeader(http.StatusAccepted)
		})), stagetest.Options{})
		response := ask(t, stage, "/own", map[string]string{stagev1.HeaderAuditLevel: "RequestResponse"})
		if response.StatusCode != http.StatusAccepted {
			t.Errorf("%d bytes: %s", size, response.Status)
		}
		var got struct {
			Annotations   map[string]string
			RequestObject json.RawMessage
		}
		if err := json.Unmarshal([]byte(response.Header.Get(stagev1.HeaderAudit)), &got); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if (len(got.RequestObject) > size) != whole || (got.Annotations["audit.k8s.io/truncated"] == "true") == whole {
			t.Errorf("%d bytes: an object of %d bytes, and %v", size, len(got.RequestObject), got.Annotations)
		}
	}
}
