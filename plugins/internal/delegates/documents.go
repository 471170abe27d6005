package delegates

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/util/responsewriter"
	"k8s.io/kube-openapi/pkg/handler3"
)

// Index has the OpenAPI v3 documents of a server, by their path below /openapi/v3.
type Index map[string]handler3.OpenAPIV3DiscoveryGroupVersion

// IndexOf returns the index of a server's OpenAPI v3 documents, and the status of the response. It is nil if the status
// is not 200.
func IndexOf(ctx context.Context, server http.Handler) (Index, int, error) {
	text, status, err := read(ctx, server, openAPIv3, "application/json")
	var document handler3.OpenAPIV3Discovery
	if err == nil && status == http.StatusOK {
		if err = json.Unmarshal(text, &document); err != nil {
			err = fmt.Errorf("%s: %w", openAPIv3, err)
		}
	}
	return document.Paths, status, err
}

func read(ctx context.Context, server http.Handler, path, accept string) (text []byte, status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, 0, err
	}
	r.Header.Set("Accept", accept)
	w := responsewriter.NewInMemoryResponseWriter()
	server.ServeHTTP(w, r)
	return w.Data(), w.RespCode(), nil
}

// Lacking returns those of the versions that a document of a server lacks: the first of discovery, OpenAPI v3 and
// OpenAPI v2 that lacks any. A server need not have OpenAPI documents.
func Lacking(ctx context.Context, server http.Handler, versions []schema.GroupVersion) []schema.GroupVersion {
	if len(versions) == 0 {
		return nil
	}
	for _, has := range []func(context.Context, http.Handler) func(schema.GroupVersion) bool{inDiscovery, inOpenAPIv3, inOpenAPIv2} {
		if lacking := slices.DeleteFunc(slices.Clone(versions), has(ctx, server)); len(lacking) > 0 {
			return lacking
		}
	}
	return nil
}

func inDiscovery(ctx context.Context, server http.Handler) func(schema.GroupVersion) bool {
	groups, _ := Groups(ctx, server) // it is empty where that fails
	return func(gv schema.GroupVersion) bool {
		return slices.ContainsFunc(groups, func(g metav1.APIGroup) bool {
			return g.Name == gv.Group && slices.ContainsFunc(g.Versions,
				func(v metav1.GroupVersionForDiscovery) bool { return v.Version == gv.Version })
		})
	}
}

func inOpenAPIv3(ctx context.Context, server http.Handler) func(schema.GroupVersion) bool {
	index, status, _ := IndexOf(ctx, server)
	return func(gv schema.GroupVersion) bool {
		_, ok := index["apis/"+gv.String()]
		return ok || status == http.StatusNotFound
	}
}

func inOpenAPIv2(ctx context.Context, server http.Handler) func(schema.GroupVersion) bool {
	text, status, _ := read(ctx, server, openAPIv2, "application/json")
	return func(gv schema.GroupVersion) bool {
		return status == http.StatusNotFound || bytes.Contains(text, []byte(`"/apis/`+gv.String()+`/`))
	}
}
