package front

import (
	"context"
	"encoding/json"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"

	"github.com/catena-dev/catena/host/internal/auditheader"
)

// logRequest adds the object of a request, and the reference to it, to the audit event.
// Kubernetes' function for that takes an object and its encoder.
func logRequest(ctx context.Context, ref *auditheader.ObjectRef, raw json.RawMessage) {
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

// loggedObject is an object in encoded form, with the metadata of its reference.
type loggedObject struct {
	metav1.PartialObjectMetadata
	raw json.RawMessage
}

func (o *loggedObject) DeepCopyObject() runtime.Object {
	clone := *o
	return &clone
}

// rawSerializer encodes a loggedObject, and nothing else.
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
