package klogr

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

const (
	connect   = "grpc: addrConn.createTransport failed to connect to "
	unwritten = "grpc: Server.processUnaryRPC failed to write status: "
)

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func TestHarmlessLines(t *testing.T) {
	conflict := apierrors.NewConflict(leases, "apiserver", errors.New("modified"))
	exists := apierrors.NewAlreadyExists(leases, "apiserver")
	for _, c := range []struct {
		name, level string
		write       func()
	}{
		{"skipped version", "INFO", func() { fromGenericAPIServer("Skipping API batch/v1beta1 because it has no resources.") }},
		{"resource without its gate", "INFO", func() {
			klog.Warning("PodGroup storage is disabled because the GenericWorkload feature gate is disabled")
		}},
		{"other warning of the file", "WARN", func() { fromGenericAPIServer("Careful: Skipping API") }},
		{"same warning of another file", "WARN", func() { klog.Warning("Skipping API batch/v1beta1 because it has no resources.") }},
		{"endpoints", "INFO", func() { fromLease(`Resetting endpoints for master service "kubernetes" to [192.0.2.1]`) }},
		{"stopped early", "INFO", func() {
			warnFromController("Unable to remove endpoints from kubernetes service: StorageError: key not found, Code: 1")
		}},
		{"killed before", "INFO", func() {
			warnFromController("Found stale data, removed previous endpoints on kubernetes service, apiserver didn't exit")
		}},
		{"killed before it was entered", "INFO", func() {
			warnFromController("Error removing old endpoints from kubernetes service: no API server IP addresses were listed " +
				"in storage, refusing to erase all endpoints for the kubernetes Service")
		}},
		{"old address not removed", "WARN", func() {
			warnFromController("Error removing old endpoints from kubernetes service: refused")
		}},
		{"address not removed", "WARN", func() { warnFromController("Unable to remove endpoints from kubernetes service: refused") }},
		{"stage that has ended", "DEBUG", func() {
			fromGRPC("[core] [Channel #9 SubChannel #10] " + connect + `{Addr: "unused", ServerName: "localhost", }. Err: x`)
		}},
		{"etcd that has ended", "DEBUG", func() {
			fromGRPC("[core] [Channel #9 SubChannel #10] " + connect + `{Addr: "127.0.0.1:2379", }. Err: x`)
		}},
		{"lease updated by another", "INFO", func() { fromController(conflict, "Failed to update lease") }},
		{"lease left by a process that ends", "INFO", func() {
			fromController(&url.Error{Op: "Put", URL: "http://catena", Err: context.Canceled}, "Failed to update lease")
		}},
		{"lease not updated", "ERROR", func() { fromController(errors.New("refused"), "Failed to update lease") }},
		{"lease made by another", "INFO", func() { fromController(exists, "Failed to ensure lease exists, will retry") }},
		{"client gone before the response", "INFO", func() { fromStatus(errors.New("not an metav1.Status: x: context canceled")) }},
		{"stream closed by the server", "INFO", func() {
			fromConn(&net.OpError{Op: "read", Err: net.ErrClosed}, "Error on socket receive")
		}},
		{"response to whoever has left", "INFO", func() {
			fromGRPC("[core] [Server #10] " + unwritten + `connection error: desc = "transport is closing"`)
		}},
		{"response that cannot be written", "WARN", func() { fromGRPC("[core] [Server #10] " + unwritten + "rpc error: code = Internal") }},
		{"stream broken", "ERROR", func() { fromConn(syscall.ECONNRESET, "Error on socket receive") }},
		{"own request left", "INFO", func() { fromRequest(context.Canceled, "Unexpected error when reading response body") }},
		{"own request broken", "ERROR", func() { fromRequest(io.ErrUnexpectedEOF, "Unexpected error when reading response body") }},
		{"watch of etcd left", "INFO", func() { fromWatcher("failed to sync with latest state: context canceled") }},
		{"watch of etcd broken", "ERROR", func() { fromWatcher("failed to sync with latest state: etcdserver: no leader") }},
		{"resource not served", "DEBUG", func() {
			fromReflector(fmt.Errorf("failed to list: %w", apierrors.NewGenericServerResponse(http.StatusNotFound, "get", leases, "", "404 page not found", 0, true)))
		}},
		{"resource not watched", "ERROR", func() { fromReflector(apierrors.NewForbidden(leases, "", errors.New("no"))) }},
		{"response not written", "INFO", func() { fromWriters(fmt.Errorf("unable to write: %w", &net.OpError{Op: "write", Err: syscall.EPIPE})) }},
		{"response not encoded", "ERROR", func() { fromWriters(errors.New("unable to write: no kind")) }},
		{"overtaken controller", "INFO", func() { fromControllers(fmt.Errorf("quota: %w", conflict)) }},
		{"controller in a namespace that ends", "INFO", func() {
			fromControllers(&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonForbidden, Details: &metav1.StatusDetails{
				Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}},
			}}})
		}},
		{"controller ahead of its cache", "INFO", func() {
			fromControllers(errors.New("sync failed with read version: 222 is not as new as written version: 245 for group resource replicasets.apps"))
		}},
		{"lease given up", "INFO", func() { fromElection(context.Canceled) }},
		{"lease not to be had", "ERROR", func() { fromElection(errors.New("refused")) }},
		{"handler of a client that has left", "INFO", func() {
			fromFinisher(errors.New("FinishRequest: post-timeout activity - time-elapsed: 6µs, panicked: false, err: context canceled, panic-reason: <nil>"))
		}},
		{"handler that was done when its client had left", "INFO", func() {
			fromFinisher(errors.New("FinishRequest: post-timeout activity - time-elapsed: 136µs, panicked: false, err: <nil>, panic-reason: <nil>"))
		}},
		{"handler that gave up its read of etcd", "INFO", func() {
			fromFinisher(errors.New("FinishRequest: post-timeout activity - time-elapsed: 6µs, panicked: false, err: get /x: context canceled, panic-reason: <nil>"))
		}},
		{"handler that has failed late", "ERROR", func() {
			fromFinisher(errors.New("FinishRequest: post-timeout activity - time-elapsed: 6µs, panicked: false, err: etcdserver: no leader, panic-reason: <nil>"))
		}},
		{"handler that has panicked", "ERROR", func() {
			fromFinisher(errors.New("FinishRequest: post-timeout activity - time-elapsed: 6µs, panicked: true, err: <nil>, panic-reason: x"))
		}},
		{"controller without a right", "ERROR", func() { fromControllers(apierrors.NewForbidden(leases, "", errors.New("no"))) }},
		{"lease not made", "ERROR", func() { fromController(conflict, "Failed to ensure lease exists, will retry") }},
	} {
		if got := logged(t, c.write); !strings.HasPrefix(got, "["+c.level) {
			t.Errorf("%s: log is %q, want level %s", c.name, got, c.level)
		}
	}
}

func TestUnhandledErrors(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	canceled := fmt.Errorf("watch: %w", context.Canceled)
	report := func(err error) func() {
		return func() { utilruntime.HandleErrorWithContext(ctx, err, "Failed to watch", "type", "Pod") }
	}
	for what, err := range map[string]error{"canceled": canceled, "refused": errors.New("refused")} {
		if got := logged(t, report(err)); !strings.HasPrefix(got, "[ERROR] UnhandledError: Failed to watch: type=Pod") {
			t.Errorf("%s before the end of the context: log is %q", what, got)
		}
	}
	cancel()
	if got := logged(t, report(errors.New("refused"))); !strings.HasPrefix(got, "[ERROR]") {
		t.Errorf("refused after the end of the context: log is %q", got)
	}
	if got := logged(t, report(canceled)); got != "" {
		t.Errorf("canceled after the end of the context: log is %q", got)
	}
}

// A client that leaves before the response is no error; a time-out is, and so is a panic.
func TestAbandonedRequests(t *testing.T) {
	const abort, late = "Timeout or abort while handling", "Post-timeout activity"
	left, leave := context.WithCancel(t.Context())
	leave()
	expired, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	<-expired.Done()
	for _, c := range []struct {
		name, want string
		ctx        context.Context
		message    string
		result     any
	}{
		{"client left", "", left, abort, nil},
		{"client left, handler returned", "", left, late, nil},
		{"client left, handler gave up", "", left, late, http.ErrAbortHandler},
		{"client left, handler panicked", "[ERROR]", left, late, "boom"},
		{"response broken off", "[ERROR]", t.Context(), abort, nil},
		{"time-out", "[ERROR]", expired, late, nil},
		{"another message", "[ERROR]", left, "Failed", nil},
	} {
		got := logged(t, func() { utilruntime.HandleErrorWithContext(c.ctx, nil, c.message, "path", "/", "result", c.result) })
		if c.want == "" && got != "" || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: log is %q, want %q", c.name, got, c.want)
		}
	}
}

// logged returns what write logs at verbosity 2.
func logged(t *testing.T, write func()) string {
	t.Helper()
	var out bytes.Buffer
	if err := Install(hclog.New(&hclog.LoggerOptions{Output: &out, DisableTime: true, Level: hclog.Debug}), "2", ""); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = Install(hclog.NewNullLogger(), "0", "") }()
	write()
	return out.String()
}

// What follows is compiled as if it were in Kubernetes' files.

//line genericapiserver.go:1
func fromGenericAPIServer(message string) { klog.Warningf("%s", message) }

//line lease.go:1
func fromLease(message string) { klog.Warningf("%s", message) }

//line logging.go:1
func fromGRPC(message string) { klog.Warning(message) }

//line controller.go:1
func warnFromController(message string) { klog.Warning(message) }

//line controller.go:1
func fromController(err error, message string) {
	klog.FromContext(context.Background()).Error(err, message, "interval", "1s")
}

//line status.go:1
func fromStatus(err error) { utilruntime.HandleError(err) }

//line writers.go:1
func fromWriters(err error) { utilruntime.HandleError(err) }

//line request.go:1
func fromRequest(err error, message string) {
	klog.FromContext(context.Background()).Error(err, message)
}

//line watcher.go:1
func fromWatcher(message string) { klog.Error(message) }

//line reflector.go:1
func fromReflector(err error) {
	utilruntime.HandleErrorWithContext(context.Background(), err, "Failed to watch", "type", "x")
}

//line conn.go:1
func fromConn(err error, message string) { klog.ErrorS(err, message) }

//line k8s.io/kubernetes@v1.37.0/pkg/controller/job/job_controller.go:1
func fromControllers(err error) {
	utilruntime.HandleErrorWithContext(context.Background(), err, "Error syncing job")
}

//line leaderelection.go:1
func fromElection(err error) {
	klog.FromContext(context.Background()).Error(err, "Error retrieving lease lock", "lock", "x")
}

//line finisher.go:1
func fromFinisher(err error) { utilruntime.HandleError(err) }
