package delegates

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/claim"
)

// What a document of a stage may have. A stage that may claim /apis speaks for the API as a whole, with all custom resources; any other for
// its own groups.
const (
	// maxWhole bounds a document of a stage that speaks for the whole API, in bytes.
	maxWhole = 256 << 20
	// maxOwn and maxOwnValues bound one of any other stage, in bytes, and in objects and lists: each takes up to a hundred times as much
	// memory as text.
	maxOwn       = 4 << 20
	maxOwnValues = 50_000
	// maxGroupVersions bounds the group versions of such a stage, each of which becomes an APIService.
	maxGroupVersions = 250

	// wholeTimeout and ownTimeout bound the time in which a document comes. After a failure one of any other stage is not asked for again
	// before ownRetry: those who merge the documents ask one stage after the other.
	wholeTimeout = time.Minute
	ownTimeout   = 2 * time.Second
	ownRetry     = 10 * time.Second
)

// Bounded returns a delegate whose documents count: its handler serves those of discovery and OpenAPI within their
// bounds, OpenAPI of what the delegate claims, and nothing else. Too large a document is ErrMalformed, and status 422.
func Bounded(d sdk.Delegate, log hclog.Logger) sdk.Delegate {
	b := &bounded{name: d.Name, next: d.Handler, own: claim.NewSet(d.Claims...), whole: speaksForAll(d), failed: map[string]time.Time{}}
	d.Handler = b
	if b.whole {
		return d
	}
	number := 0
	d.ListedPaths = slices.DeleteFunc(slices.Clone(d.ListedPaths), func(path string) bool {
		if strings.Count(path, "/") != 3 || !strings.HasPrefix(path, apis+"/") {
			return false
		}
		number++
		return number > maxGroupVersions
	})
	if number > maxGroupVersions {
		log.Warn("a stage lists more group versions than it can have: the first count", "delegate", d.Name, "listed",
			number, "most", maxGroupVersions)
	}
	return d
}

// speaksForAll reports whether a delegate may claim /apis.
func speaksForAll(d sdk.Delegate) bool {
	return slices.ContainsFunc(d.Claims, func(c sdk.Claim) bool { return c.Covers(apis) })
}

// bounded is the handler of a delegate.
type bounded struct {
	name  string
	next  http.Handler
	own   claim.Set
	whole bool // it speaks for the whole API

	mu sync.Mutex
	// failed says when the request for a document has failed, by path.
	failed map[string]time.Time
}

// counts reports whether a delegate may have a group version.
func (b *bounded) counts(gv metav1.GroupVersion) bool {
	return b.whole || b.own.CoversTree(apis+"/"+gv.Group+"/"+gv.Version)
}

// ServeHTTP implements http.Handler.
func (b *bounded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if name, ok := strings.CutPrefix(r.URL.Path, openAPIv3+"/"); ok && name != "" {
		if !b.whole && !b.own.Covers("/"+name) {
			http.NotFound(w, r)
			return
		}
		b.next.ServeHTTP(w, r) // it is not kept
		return
	}
	response, err := b.fetch(r)
	if err == nil && response.code == http.StatusOK && !b.whole {
		err = b.restrict(r.URL.Path, response)
	}
	switch {
	case errors.Is(err, ErrMalformed):
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		response.send(w)
	}
}

// fetch has the delegate respond.
func (b *bounded) fetch(r *http.Request) (*document, error) {
	timeout := ownTimeout
	if b.whole {
		timeout = wholeTimeout
	} else if b.hasFailed(r.URL.Path) {
		return nil, fmt.Errorf("stage %q has not sent %s in %s", b.name, r.URL.Path, timeout)
	}
	// A proxy logs what it does not abort, and aborts within a server; it logs a deadline too.
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{}))
	defer cancel()
	defer time.AfterFunc(timeout, cancel).Stop()
	response := &document{limit: maxOwn, header: http.Header{}, code: http.StatusOK, cancel: cancel}
	if b.whole {
		response.limit = maxWhole
	}
	broken := abortable(b.next, response, r.WithContext(ctx))
	switch {
	case response.tooLarge, !b.whole && values(response.text.Bytes()) > maxOwnValues:
		return nil, fmt.Errorf("%w: %s of stage %q is too large", ErrMalformed, r.URL.Path, b.name)
	case r.Context().Err() != nil:
		return nil, fmt.Errorf("stage %q: %s: %w", b.name, r.URL.Path, r.Context().Err())
	case ctx.Err() != nil:
		b.fail(r.URL.Path)
		return nil, fmt.Errorf("stage %q has not sent %s in %s", b.name, r.URL.Path, timeout)
	case broken:
		return nil, fmt.Errorf("stage %q: the response to %s has broken off", b.name, r.URL.Path)
	}
	return response, nil
}

// abortable calls a handler. It reports whether that has aborted its response, as a proxy does with one that breaks off.
func abortable(h http.Handler, w http.ResponseWriter, r *http.Request) (aborted bool) {
	defer func() {
		if p := recover(); p != nil {
			if p != http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
				panic(p)
			}
			aborted = true
		}
	}()
	h.ServeHTTP(w, r)
	return false
}

func (b *bounded) hasFailed(path string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok := b.failed[path]
	return ok && time.Since(at) < ownRetry
}

func (b *bounded) fail(path string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed[path] = time.Now()
}

// restrict takes out of a document what the delegate does not claim.
func (b *bounded) restrict(path string, d *document) (err error) {
	var text []byte
	switch path {
	case openAPIv3:
		var index handler3.OpenAPIV3Discovery
		if json.Unmarshal(d.text.Bytes(), &index) != nil {
			return nil // it is told as malformed by those who read it
		}
		for name := range index.Paths {
			if !b.own.Covers("/" + name) {
				delete(index.Paths, name)
			}
		}
		text, err = json.Marshal(index)
	case openAPIv2:
		if text, err = b.ownOpenAPIv2(d.text.Bytes()); text == nil && err == nil {
			return nil
		}
	default:
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %s of stage %q: %w", ErrMalformed, path, b.name, err)
	}
	d.text.Reset()
	_, _ = d.text.Write(text)
	d.header = http.Header{"Content-Type": {"application/json"}}
	return nil
}

// gvkExtension says in a definition of which kinds it is.
const gvkExtension = "x-kubernetes-group-version-kind"

// ownOpenAPIv2 returns the document without the paths and the kinds of others; nil if it cannot be read.
func (b *bounded) ownOpenAPIv2(text []byte) ([]byte, error) {
	var swagger spec.Swagger
	if json.Unmarshal(text, &swagger) != nil {
		return nil, nil
	}
	if swagger.Paths != nil {
		for path := range swagger.Paths.Paths {
			if !b.own.Covers(path) {
				delete(swagger.Paths.Paths, path)
			}
		}
	}
	for _, definition := range swagger.Definitions {
		kinds, _ := definition.Extensions[gvkExtension].([]any)
		kinds = slices.DeleteFunc(kinds, func(kind any) bool { return !b.counts(groupVersionOf(kind)) })
		if len(kinds) == 0 {
			delete(definition.Extensions, gvkExtension)
		} else {
			definition.Extensions[gvkExtension] = kinds
		}
	}
	return json.Marshal(swagger)
}

func groupVersionOf(kind any) metav1.GroupVersion {
	fields, _ := kind.(map[string]any)
	group, _ := fields["group"].(string)
	version, _ := fields["version"].(string)
	return metav1.GroupVersion{Group: group, Version: version}
}

// values returns how many objects and lists a text in JSON has at most.
func values(text []byte) int { return bytes.Count(text, []byte("{")) + bytes.Count(text, []byte("[")) }

// document is a response that is kept up to a limit.
type document struct {
	limit    int
	header   http.Header
	code     int
	text     bytes.Buffer
	tooLarge bool
	cancel   context.CancelFunc
}

var errTooLarge = errors.New("the document is too large")

func (d *document) Header() http.Header { return d.header }

func (d *document) WriteHeader(code int) {
	if code >= http.StatusOK {
		d.code = code
	}
}

// Write implements io.Writer. What does not fit ends the request.
func (d *document) Write(p []byte) (int, error) {
	if d.text.Len()+len(p) > d.limit {
		d.tooLarge = true
		d.text.Reset()
		d.limit = 0
		d.cancel()
		return 0, errTooLarge
	}
	return d.text.Write(p)
}

func (d *document) send(w http.ResponseWriter) {
	for key, value := range d.header {
		w.Header()[key] = value
	}
	w.WriteHeader(d.code)
	_, _ = w.Write(d.text.Bytes())
}
