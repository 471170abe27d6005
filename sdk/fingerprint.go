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
}

func fingerprintOf(r *http.Request) fingerprint {
	return fingerprint{
		method: r.Method, host: r.Host,
		path: r.URL.Path, rawPath: r.URL.RawPath, query: r.URL.RawQuery,
		header: headerSum(r.Header),
		body:   r.Body, length: r.ContentLength,
	}
}

var headerSeed = maphash.MakeSeed()

// headerSum returns a checksum of a header that does not depend on the order of the keys. Headers of the protocol are
// left out, and those that the next stage gets from the host in any case. A copy to compare with would cost each
// request more than everything else that the SDK does for it.
func headerSum(h http.Header) (sum uint64) {
	for key, values := range h {
		if strings.HasPrefix(key, stagev1.HeaderPrefix) || key == "Audit-Id" || key == "Expect" {
			continue
		}
		name := maphash.String(headerSeed, key)
		for i, value := range values {
			sum += (name + uint64(i)) * (maphash.String(headerSeed, value) | 1)
		}
	}
	return sum
}
