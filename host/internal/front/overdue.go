package front

import (
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// When the time of a request is over, upstream's timeout filter answers 504, if nothing
// of another answer has been written, and breaks the connection off otherwise. It does
// that on its own goroutine: a handler that notices the deadline, too, must neither
// write nor return before the filter has acted.

// overdueHeader marks the header of an answer that the timeout filter is to give. Once
// the filter has taken over, its writer shows the handler another, empty header.
const overdueHeader = "X-Catena-Overdue"

// overdueLimit bounds the wait for the filter.
const overdueLimit = 10 * time.Second

func markOverdue(w http.ResponseWriter) { w.Header().Set(overdueHeader, "true") }

// awaitTimeout returns at once if the request is not marked, else when the timeout
// filter has taken over.
func (e errorWriter) awaitTimeout(w http.ResponseWriter, r *http.Request) {
	overdue := func() bool { return w.Header()[overdueHeader] != nil }
	for began := time.Now(); overdue(); time.Sleep(time.Millisecond) {
		if time.Since(began) > overdueLimit { // no filter: the request is not one that it covers
			w.Header().Del(overdueHeader)
			e.write(w, r, apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0))
		}
	}
}
