package front

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/notfoundhandler"

	"github.com/catena-dev/catena/host/internal/relay"
)

// NotFound returns the end of the chain: 404, or 503 with Retry-After for requests
// that came before all signals of AddSignal did.
func (f *Frontend) NotFound() http.Handler {
	return notfoundhandler.New(f.writer.serializer, genericapifilters.NoMuxAndDiscoveryIncompleteKey)
}

// StageError responds to a request that got no response from its stage. Retry-After is
// only in the response to a request that was not executed: client-go repeats any
// request that got one. The cause is for operators only; see ChainPath.
func (f *Frontend) StageError(w http.ResponseWriter, r *http.Request, e *relay.StageError) {
	if f.awaitTimeout(r, e) {
		return
	}
	f.writer.write(w, r, statusOf(e, func() bool { return f.isOperator(r.Context()) }))
}

// statusOf asks whether the user is an operator only where that makes a difference.
func statusOf(e *relay.StageError, toOperator func() bool) *apierrors.StatusError {
	switch e.Kind {
	case relay.Unavailable:
		message := fmt.Sprintf("the server is currently unable to handle the request: stage %q is not available", e.Stage)
		if toOperator() {
			message = "the server is currently unable to handle the request: " + e.Error()
		}
		return retryAfter(apierrors.NewServiceUnavailable(message), 1)
	case relay.Canceled:
		return apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0)
	case relay.BadRequest:
		var tooLarge *http.MaxBytesError
		if errors.As(e.Err, &tooLarge) {
			return apierrors.NewRequestEntityTooLargeError(tooLarge.Error())
		}
		return apierrors.NewBadRequest(e.Err.Error())
	case relay.LostTwice:
		err := fmt.Errorf("stage %q ended twice without a response to this request, which is not sent again", e.Stage)
		if toOperator() {
			err = e
		}
		return apierrors.NewInternalError(err)
	default:
		err := errors.New("the request was handed on and may have been executed, but there is no response to it")
		if toOperator() {
			err = e
		}
		return apierrors.NewInternalError(err)
	}
}

func retryAfter(err *apierrors.StatusError, seconds int32) *apierrors.StatusError {
	if err.ErrStatus.Details == nil {
		err.ErrStatus.Details = &metav1.StatusDetails{}
	}
	err.ErrStatus.Details.RetryAfterSeconds = seconds
	return err
}

// errorWriter writes errors in the form that the client has asked for.
type errorWriter struct {
	serializer runtime.NegotiatedSerializer
}

func (e errorWriter) write(w http.ResponseWriter, r *http.Request, err error) {
	gv := schema.GroupVersion{}
	if info, ok := request.RequestInfoFrom(r.Context()); ok {
		gv = schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
	}
	responsewriters.ErrorNegotiated(err, e.serializer, gv, w, r)
}

// starting responds to requests that come before there is a chain.
func (e errorWriter) starting(w http.ResponseWriter, r *http.Request) {
	e.write(w, r, retryAfter(apierrors.NewServiceUnavailable("the server is starting"), 1))
}

// lost responds to requests that come when there is no store any more.
func (e errorWriter) lost(w http.ResponseWriter, r *http.Request) {
	e.write(w, r, retryAfter(apierrors.NewServiceUnavailable("the store has failed, and the server ends"), 5))
}
