//go:build kube1.36

package kube

import (
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// codecs are those of controlplaneapiserver.BuildGenericConfig, whose discovery has no CBOR in this release.
func codecs() serializer.CodecFactory { return legacyscheme.Codecs }
