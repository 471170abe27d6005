package front

import (
	"context"
	"encoding/json"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/audit"
)

// objectRef is the object that a request is about, as far as the stage knows more
// of it than the URL does: the name that a body has, for one.
type objectRef struct {
	Resource        string    `json:"resource"`
	Namespace       string    `json:"namespace"`
	Name            string    `json:"name"`
	UID             types.UID `json:"uid"`
	APIGroup        string    `json:"apiGroup"`
	APIVersion      string    `json:"apiVersion"`
	ResourceVersion string    `json:"resourceVersion"`
	Subresource     string    `json:"subresource"`
}

// logRequest adds the object of a request, and what refers to it, to the audit
// event. Upstream's only way to do so takes an object and the encoder for it.
func logRequest(ctx context.Context, ref *objectRef, raw json.RawMessage) {
	if ref == nil {
		if len(raw) > 0 {
			audit.LogRequestPatch(ctx, raw)
		}
		return
	}
	object := &loggedObject{raw: raw}
	object.Namespace, object.Name, object.UID, object.ResourceVersion = ref.Namespace, ref.Name, ref.UID, ref.ResourceVersion
	gv := schema.GroupVersion{Group: ref.APIGroup, Version: ref.APIVersion}
	audit.LogRequestObject(ctx, object, gv, gv.WithResource(ref.Resource), ref.Subresource, rawSerializer{})
}

// loggedObject is an object of which nothing is known but what a reference says,
// and its encoded form.
type loggedObject struct {
	metav1.PartialObjectMetadata
	raw json.RawMessage
}

func (o *loggedObject) DeepCopyObject() runtime.Object {
	clone := *o
	return &clone
}

// rawSerializer encodes a loggedObject. It can do nothing else.
type rawSerializer struct{ runtime.NegotiatedSerializer }

func (rawSerializer) SupportedMediaTypes() []runtime.SerializerInfo {
	return []runtime.SerializerInfo{{MediaType: runtime.ContentTypeJSON}}
}

func (rawSerializer) EncoderForVersion(runtime.Encoder, runtime.GroupVersioner) runtime.Encoder {
	return rawEncoder{}
}

type rawEncoder struct{}

func (rawEncoder) Encode(object runtime.Object, w io.Writer) error {
	_, err := w.Write(object.(*loggedObject).raw)
	return err
}

func (rawEncoder) Identifier() runtime.Identifier { return "catena-raw" }
