package klogr

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hashicorp/go-hclog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// rule names lines that Kubernetes' code logs as warnings or errors while nothing is
// wrong, or that say what another line says. They are logged at level Info, or at a lower one.
type rule struct {
	// file is the base name of the source file, or what its path contains if there is a slash in it, and any if it is
	// empty; message is what the line begins with, and text what else is in it. Warnings have no path.
	file, message, text string
	// cause, if not nil, is what the error of the line has to be.
	cause func(error) bool
	// level is hclog.Debug for lines that come in great numbers.
	level hclog.Level
}

// harmless are the lines that a server logs which starts, runs, has its stages swapped
// and stops as it should. What can be avoided is avoided where it comes from; a line is
// here only if the code that logs it cannot be made not to.
var harmless = []rule{
	// A group that has versions of which none is enabled, as most beta versions.
	{file: "genericapiserver.go", message: "Skipping API "},
	// A resource whose feature gate is off, as in each release before the one that switches it on, and in one that is
	// emulated.
	{text: " storage is disabled because the "},
	// The address of this server comes to the Service kubernetes, or leaves it.
	{file: "lease.go", message: `Resetting endpoints for master service "kubernetes" to `},
	// It was killed before, and finds its own address, or no other's; or it has no endpoints at all.
	{file: "controller.go", message: "Found stale data, removed previous endpoints on kubernetes service"},
	{file: "controller.go", message: "Error removing old endpoints from kubernetes service: ",
		text: "refusing to erase all endpoints for the kubernetes Service"},
	// Two processes of a stage renew the lease of their server for as long as both run;
	// the one that was overtaken reads it again, and the one that ends leaves it.
	{file: "controller.go", message: "Failed to update lease",
		cause: func(err error) bool { return isCanceled(err) || apierrors.IsConflict(err) }},
	{file: "controller.go", message: "Failed to ensure lease exists, will retry",
		cause: func(err error) bool { return isCanceled(err) || apierrors.IsAlreadyExists(err) }},
	// A server that stops soon after its start has not entered itself yet.
	{file: "controller.go", message: "Unable to remove endpoints from kubernetes service: StorageError: key not found"},
	{file: "peer_endpoint_lease.go", message: "Unable to remove peer endpoint leases: StorageError: key not found"},
	// The debug socket is closed when the server stops.
	{file: "genericapiserver.go", message: "http: Server closed"},
	// A client leaves before it has the whole response.
	{file: "status.go", message: "Unhandled Error", cause: isClientGone},
	{file: "writers.go", message: "Unhandled Error", cause: isClientGone},
	{file: "finisher.go", message: "Unhandled Error", cause: isDoneForNobody},
	// The server ends while a client has a stream to a container.
	{file: "conn.go", message: "Error on socket receive", cause: func(err error) bool { return errors.Is(err, net.ErrClosed) }},
	// A process that is replaced leaves a request of its own.
	{file: "request.go", message: "Unexpected error when reading response body", cause: isCanceled},
	// A process ends while its caches fill from etcd.
	{file: "watcher.go", message: "failed to sync with latest state: context canceled"},
	// A resource that the chain does not serve, or does no longer since a stage is of another release. A client that
	// cannot do without it says so in its health check.
	{file: "reflector.go", message: "Failed to watch", cause: isNotServed, level: hclog.Debug},
	// A controller tries again what another client was faster with, or what is not to be any more.
	{file: "/pkg/controller/", cause: isOvertaken},
	// Another process was faster with a lease, or this one gives it up and leaves a request for it.
	{file: "leaderelection.go", cause: func(err error) bool {
		return isCanceled(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
	}},
	// go-plugin ends a process by an RPC that closes the connection before its response; a stage closes a connection to the embedded etcd
	// on which a request is under way.
	{file: "logging.go", message: "[core] [Server #", text: `grpc: Server.processUnaryRPC failed to write status: connection error: desc = "transport is closing"`},
	// gRPC connects once more to a stage whose process has ended, and the host logs that end; or etcd does not respond, and gRPC logs
	// each of hundreds of connections, the host one line.
	{file: "logging.go", message: "[core] [Channel #", text: "grpc: addrConn.createTransport failed to connect to ", level: hclog.Debug},
}

// isNotServed reports whether a resource is unknown to the server. An object that is missing has a name.
func isNotServed(err error) bool {
	return apierrors.IsNotFound(err) && strings.Contains(err.Error(), "the server could not find the requested resource")
}

// namespaceTerminating is k8s.io/api/core/v1.NamespaceTerminatingCause, without that package.
const namespaceTerminating = "NamespaceTerminating"

// isOvertaken reports whether another client has changed the object, or is deleting the namespace that it is in, or
// whether what the controller itself has written is not in its cache yet, by the text of
// k8s.io/kubernetes/pkg/controller/util/consistency.
func isOvertaken(err error) bool {
	return apierrors.IsConflict(err) || apierrors.HasStatusCause(err, namespaceTerminating) ||
		strings.Contains(err.Error(), " is not as new as written version: ")
}

func isCanceled(err error) bool { return errors.Is(err, context.Canceled) }

// isClientGone goes by the text: the code that logs it does not wrap all of its errors.
func isClientGone(err error) bool {
	for _, cause := range []string{
		context.Canceled.Error(), http.ErrHandlerTimeout.Error(), syscall.EPIPE.Error(), syscall.ECONNRESET.Error(),
		"http2: stream closed", "client disconnected", // which net/http does not export
	} {
		if strings.HasSuffix(err.Error(), ": "+cause) {
			return true
		}
	}
	return false
}

// isDoneForNobody goes by the text that is made of the result of a request whose client has left: it was given up, or
// done all the same.
func isDoneForNobody(err error) bool {
	result, ok := strings.CutSuffix(err.Error(), ", panic-reason: <nil>")
	return ok &&
		(strings.HasSuffix(result, "panicked: false, err: <nil>") || strings.HasSuffix(result, context.Canceled.Error()))
}

func (r rule) isOf(path string) bool {
	if strings.Contains(r.file, "/") {
		return strings.Contains(path, r.file)
	}
	return r.file == "" || filepath.Base(path) == r.file
}

// lowered returns the level of a line that has a higher one than Info in Kubernetes' code.
func lowered(level hclog.Level, path, message string, err error) hclog.Level {
	for _, r := range harmless {
		if r.isOf(path) && strings.HasPrefix(message, r.message) && strings.Contains(message, r.text) &&
			(r.cause == nil || err != nil && r.cause(err)) {
			return cmp.Or(r.level, hclog.Info)
		}
	}
	return level
}
