package kube

import (
	"bytes"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// coldCacheTimeout is how long a request waits for the cache of its resource. A cache that
// takes longer cannot be filled, and the client is told so as by kube-apiserver.
const coldCacheTimeout = 30 * time.Second

// waitForColdCaches makes a server's lists and watches wait for the cache of their
// resource. Kubernetes fills the cache of a custom resource from its first request on, and
// until then, some milliseconds, refuses with 429 what needs the cache. In one process
// that is seen once, after a start; here it would be seen at each swap.
func waitForColdCaches(config *genericapiserver.Config, draining <-chan struct{}) {
	build := config.BuildHandlerChainFunc
	config.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		return build(withColdCaches(handler, coldCacheTimeout, draining), c)
	}
}

// cannotFill is in the text of the refusal if the cache has tried to fill, and why it could not follows: a converter is
// gone, for example. (ready.go of k8s.io/apiserver/pkg/storage/cacher)
const cannotFill = "storage is (re)initializing: "

// withColdCaches handles a list or watch again, for as long as it is refused with 429, the cache has not failed to fill, and
// timeout has not passed. Nothing else inside a stage has this status: limits are the host's.
// When another process takes this one's place, as draining reports, the connection is
// broken off without a response, on which the host sends the request to that process.
func withColdCaches(handler http.Handler, timeout time.Duration, draining <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || !info.IsResourceRequest || info.Verb != "list" && info.Verb != "watch" {
			handler.ServeHTTP(w, r)
			return
		}
		deadline := time.Now().Add(timeout)
		if closed(draining) {
			deadline = time.Now()
		}
		failed := false
		for pause := 5 * time.Millisecond; !failed && time.Now().Before(deadline) &&
			r.Context().Err() == nil; pause = min(2*pause, 200*time.Millisecond) {
			try := &attempt{ResponseWriter: w}
			handler.ServeHTTP(responsewriter.WrapForHTTP1Or2(try), r)
			if !try.refused {
				return
			}
			w.Header().Del("Retry-After")
			if failed = bytes.Contains(try.text, []byte(cannotFill)); failed {
				continue
			}
			select {
			case <-draining:
				panic(http.ErrAbortHandler)
			case <-r.Context().Done():
			case <-time.After(pause):
			}
		}
		handler.ServeHTTP(w, r)
	})
}

// maxRefusal is how much of a refusal is looked at.
const maxRefusal = 4 << 10

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// attempt passes a response on unless it is 429.
type attempt struct {
	http.ResponseWriter
	refused bool
	// text is the beginning of the refusal, in whatever format: all have the message as it is.
	text []byte
}

// Unwrap is for responsewriter.WrapForHTTP1Or2.
func (a *attempt) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (a *attempt) WriteHeader(code int) {
	if code == http.StatusTooManyRequests {
		a.refused = true
		return
	}
	a.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (a *attempt) Write(body []byte) (int, error) {
	if a.refused {
		a.text = append(a.text, body[:min(len(body), maxRefusal-len(a.text))]...)
		return len(body), nil
	}
	return a.ResponseWriter.Write(body)
}

// Flush implements http.Flusher; the writer of a stage is one.
func (a *attempt) Flush() {
	if !a.refused {
		a.ResponseWriter.(http.Flusher).Flush()
	}
}
