package delegates

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/util/responsewriter"
	"k8s.io/kube-openapi/pkg/handler3"

	"github.com/catena-dev/catena/sdk"
)

// openAPIv3 is the path of the index of OpenAPI v3 documents, which are below it.
const openAPIv3 = "/openapi/v3"

// OpenAPIv3 serves the OpenAPI v3 documents of several stages, and one index of all. A document comes from the
// first stage that has it. It asks the stages when it is asked, and never by itself.
type OpenAPIv3 struct {
	stages []sdk.Delegate

	mu sync.Mutex
	// indexes are the last ones that the stages have sent, in their order.
	indexes []index
}

// index has the documents of a stage, by their path below openAPIv3.
type index map[string]handler3.OpenAPIV3DiscoveryGroupVersion

// NewOpenAPIv3 returns a handler for the paths /openapi/v3 and below.
func NewOpenAPIv3(stages []sdk.Delegate) *OpenAPIv3 {
	return &OpenAPIv3{stages: stages, indexes: make([]index, len(stages))}
}

// ServeHTTP implements http.Handler.
func (o *OpenAPIv3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, openAPIv3), "/")
	if name == "" {
		o.serveIndex(w, r)
		return
	}
	stage := o.owner(name)
	if stage == nil {
		o.refresh(r.Context()) // it may be new
		stage = o.owner(name)
	}
	if stage == nil {
		http.NotFound(w, r)
		return
	}
	stage.ServeHTTP(w, r)
}

func (o *OpenAPIv3) serveIndex(w http.ResponseWriter, r *http.Request) {
	o.refresh(r.Context())
	text, err := json.Marshal(handler3.OpenAPIV3Discovery{Paths: o.merged()})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	http.ServeContent(w, r, openAPIv3, time.Time{}, bytes.NewReader(text))
}

// merged returns the index of all documents.
func (o *OpenAPIv3) merged() index {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := index{}
	for _, documents := range o.indexes {
		for name, document := range documents {
			if _, ok := all[name]; !ok {
				all[name] = document
			}
		}
	}
	return all
}

// owner returns the first stage that has a document, nil if there is none.
func (o *OpenAPIv3) owner(name string) http.Handler {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, documents := range o.indexes {
		if _, ok := documents[name]; ok {
			return o.stages[i].Handler
		}
	}
	return nil
}

// refresh asks all stages at once for their indexes. That of a stage which does not respond stays as it was.
func (o *OpenAPIv3) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var all sync.WaitGroup
	for i, stage := range o.stages {
		all.Go(func() {
			documents, err := fetchIndex(ctx, stage.Handler)
			if err != nil {
				return // the stage's discovery fails too, and is logged
			}
			o.mu.Lock()
			defer o.mu.Unlock()
			o.indexes[i] = documents
		})
	}
	all.Wait()
}

func fetchIndex(ctx context.Context, stage http.Handler) (index, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, openAPIv3, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	w := responsewriter.NewInMemoryResponseWriter()
	stage.ServeHTTP(w, r)
	if w.RespCode() != http.StatusOK {
		return nil, fmt.Errorf("status %d", w.RespCode())
	}
	var document handler3.OpenAPIV3Discovery
	if err := json.Unmarshal(w.Data(), &document); err != nil {
		return nil, err
	}
	return document.Paths, nil
}
