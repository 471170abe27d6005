package apistage

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
)

type groupVersion = schema.GroupVersion

// groupStorageFactory stores each kind in the group's version, or in another one if the
// kind is not in that.
type groupStorageFactory struct {
	options.SimpleStorageFactory
	scheme *groupScheme
}

func (f *groupStorageFactory) NewConfig(resource schema.GroupResource, example runtime.Object) (*storagebackend.ConfigForResource, error) {
	config, err := f.SimpleStorageFactory.NewConfig(resource, example)
	if err != nil || example == nil {
		return config, err
	}
	kind, err := f.scheme.kindOf(example)
	if err != nil {
		return nil, err
	}
	versions := f.scheme.versionsOf(kind)
	if len(versions) == 0 {
		return nil, fmt.Errorf("kind %q is in no version of the group", kind)
	}
	config.Codec = f.scheme.codecs.LegacyCodec(versions[0])
	config.EncodeVersioner = runtime.NewMultiGroupVersioner(versions[0], schema.GroupKind{Group: versions[0].Group, Kind: kind})
	return config, nil
}

// noStore is for servers without a store.
type noStore struct{}

func (noStore) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{}, fmt.Errorf("%s cannot be stored: the host has no store (etcd-servers is empty)", resource)
}

// negotiated is a serializer with only some of its media types.
type negotiated struct {
	runtime.NegotiatedSerializer
	mediaTypes []runtime.SerializerInfo
}

func (n negotiated) SupportedMediaTypes() []runtime.SerializerInfo { return n.mediaTypes }

// withoutProtobuf serves a group whose types have no protobuf, as those of custom
// resources have none: clients that would like it get JSON.
func withoutProtobuf(all runtime.NegotiatedSerializer) runtime.NegotiatedSerializer {
	var kept []runtime.SerializerInfo
	for _, info := range all.SupportedMediaTypes() {
		if info.MediaType != runtime.ContentTypeProtobuf {
			kept = append(kept, info)
		}
	}
	return negotiated{all, kept}
}
