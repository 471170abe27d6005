package upgrade

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// storedAs are the versions of a kind in the store, with the number of objects and one of their keys.
type storedAs struct {
	objects int
	example string
}

// compareStored finds what of the store the two releases do not both read. Kinds that neither knows belong to
// other stages.
func (p *Plan) compareStored(ctx context.Context, in Input, old, next map[schema.GroupKind]*stagev1.Kubernetes_Kind) error {
	stored, encrypted := map[schema.GroupVersionKind]storedAs{}, 0
	err := in.Stored(ctx, func(key string, value []byte) {
		p.Objects++
		gvk, ok := typeOf(value)
		switch {
		case ok:
			s := stored[gvk]
			s.objects++
			s.example = key
			stored[gvk] = s
		case bytes.HasPrefix(value, []byte("k8s:enc:")):
			encrypted++
		}
	})
	if err != nil {
		return fmt.Errorf("objects in the store: %w", err)
	}
	if encrypted > 0 {
		p.add(Finding{Topic: Unknown, Name: "encrypted objects",
			Detail: fmt.Sprintf("%d objects are encrypted in the store: which versions they are stored in is not looked at", encrypted)})
	}
	for _, gvk := range slices.SortedFunc(maps.Keys(stored),
		func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) }) {
		gk, s := gvk.GroupKind(), stored[gvk]
		was, wasKnown := old[gk]
		is, isKnown := next[gk]
		if !wasKnown && !isKnown || isKnown && slices.Contains(is.GetVersions(), gvk.Version) {
			continue
		}
		if wasKnown && !slices.Contains(was.GetVersions(), gvk.Version) {
			continue // neither reads it
		}
		p.add(Finding{Topic: Unreadable, Name: gk.String(), Blocks: true, Detail: fmt.Sprintf(
			"%d objects are stored as %s, which %s cannot read, such as %s", s.objects, gvk.GroupVersion(), p.To, s.example)})
	}
	if in.Emulated == "" {
		p.compareWayBack(old, next, stored)
	}
	return nil
}

// compareWayBack finds what the new release writes that the old one could not read.
func (p *Plan) compareWayBack(old, next map[schema.GroupKind]*stagev1.Kubernetes_Kind, stored map[schema.GroupVersionKind]storedAs) {
	inStore := map[schema.GroupKind]bool{}
	for gvk := range stored {
		inStore[gvk.GroupKind()] = true
	}
	for gk, is := range next {
		if len(is.GetServed()) == 0 {
			continue
		}
		was, known := old[gk]
		if known && !slices.Contains(was.GetVersions(), is.GetStorageVersion()) {
			p.add(Finding{Topic: Back, Name: gk.String(), Blocks: inStore[gk], Detail: fmt.Sprintf(
				"is written as %s, which %s cannot read: the way back loses each object that has been written by then",
				is.GetStorageVersion(), p.From)})
		}
	}
}

func kinds(k *stagev1.Kubernetes) map[schema.GroupKind]*stagev1.Kubernetes_Kind {
	all := map[schema.GroupKind]*stagev1.Kubernetes_Kind{}
	for _, kind := range k.GetKinds() {
		all[schema.GroupKind{Group: kind.GetGroup(), Kind: kind.GetKind()}] = kind
	}
	return all
}

// typeOf reads the version and kind of an object as it is stored: protobuf in Kubernetes' envelope, or JSON.
func typeOf(value []byte) (schema.GroupVersionKind, bool) {
	var meta metav1.TypeMeta
	if rest, ok := bytes.CutPrefix(value, []byte("k8s\x00")); ok {
		var envelope runtime.Unknown
		if envelope.Unmarshal(rest) != nil {
			return schema.GroupVersionKind{}, false
		}
		meta.APIVersion, meta.Kind = envelope.APIVersion, envelope.Kind
	} else if json.Unmarshal(value, &meta) != nil {
		return schema.GroupVersionKind{}, false
	}
	gvk := meta.GroupVersionKind()
	return gvk, gvk.Kind != ""
}
