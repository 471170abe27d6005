// Package requestinfo tells stages what a request asks for, as kube-apiserver reads its method, path and query.
package requestinfo

import (
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/catena-dev/catena/sdk/stagev1/header"
)

// Factory returns what reads requests as kube-apiserver does.
func Factory() *request.RequestInfoFactory {
	return &request.RequestInfoFactory{
		APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
	}
}

// longest is how long the values may be together. No object has a name as long as that.
const longest = 4 << 10

// Append appends the line of [header.RequestInfo], which a request does not have whose values are longer than 4 KiB.
func Append(dst []byte, info *request.RequestInfo) []byte {
	if len(info.Verb)+len(info.APIGroup)+len(info.APIVersion)+len(info.Namespace)+len(info.Resource)+len(info.Subresource)+len(info.Name) > longest {
		return dst
	}
	dst = append(dst, header.RequestInfo+`: {"verb":`...)
	dst = header.AppendString(dst, info.Verb)
	if info.IsResourceRequest {
		dst = appendMember(dst, `,"apiGroup":`, info.APIGroup)
		dst = appendMember(dst, `,"apiVersion":`, info.APIVersion)
		dst = appendMember(dst, `,"namespace":`, info.Namespace)
		dst = appendMember(dst, `,"resource":`, info.Resource)
		dst = appendMember(dst, `,"subresource":`, info.Subresource)
		dst = appendMember(dst, `,"name":`, info.Name)
	}
	return append(dst, "}\r\n"...)
}

func appendMember(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	return header.AppendString(append(dst, name...), value)
}
