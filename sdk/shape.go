package sdk

import (
	"hash/maphash"
	"io"
	"net/http"
	"strings"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// shape is what a handler can change of a request, in a form that == compares.
type shape struct {
	method, host         string
	path, rawPath, query string
	header               uint64
	body                 io.ReadCloser
	length               int64
	done                 <-chan struct{} // of the context: a new deadline is a change, a new value is none
}

func shapeOf(r *http.Request) shape {
	return shape{
		method: r.Method, host: r.Host,
		path: r.URL.Path, rawPath: r.URL.RawPath, query: r.URL.RawQuery,
		header: headerSum(r.Header),
		body:   r.Body, length: r.ContentLength,
		done: r.Context().Done(),
	}
}

var headerSeed = maphash.MakeSeed()

// headerSum is a checksum of a header, whatever the order of its keys. It leaves out
// what only host and SDK use. A copy to compare with would cost each request more
// than all else that the SDK does for it.
func headerSum(h http.Header) (sum uint64) {
	type field struct {
		key, value string
		index      int
	}
	for key, values := range h {
		if strings.HasPrefix(key, stagev1.HeaderPrefix) {
			continue
		}
		for i, value := range values {
			sum += maphash.Comparable(headerSeed, field{key, value, i})
		}
	}
	return sum
}
