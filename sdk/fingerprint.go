package sdk

import (
	"hash/maphash"
	"io"
	"net/http"
	"strings"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// fingerprint is what a handler can change of a request, comparable with ==.
type fingerprint struct {
	method, host         string
	path, rawPath, query string
	header               uint64
	body                 io.ReadCloser
	length               int64
	done                 <-chan struct{} // of the context: a new deadline is a change, a new value is not
}

func fingerprintOf(r *http.Request) fingerprint {
	return fingerprint{
		method: r.Method, host: r.Host,
		path: r.URL.Path, rawPath: r.URL.RawPath, query: r.URL.RawQuery,
		header: headerSum(r.Header),
		body:   r.Body, length: r.ContentLength,
		done: r.Context().Done(),
	}
}

var headerSeed = maphash.MakeSeed()

// headerSum returns a checksum of a header that does not depend on the order of the keys.
// Headers of the protocol are left out, and those that the next stage gets from the host in any case. A copy to compare with would cost each request more
// than everything else that the SDK does for it.
func headerSum(h http.Header) (sum uint64) {
	type field struct {
		key, value string
		index      int
	}
	for key, values := range h {
		if strings.HasPrefix(key, stagev1.HeaderPrefix) || key == "Audit-Id" || key == "Expect" {
			continue
		}
		for i, value := range values {
			sum += maphash.Comparable(headerSeed, field{key, value, i})
		}
	}
	return sum
}
