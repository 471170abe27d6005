package sdk

import (
	"context"
	"encoding/json"
	"slices"
)

// User is the user of a request, as the host has authenticated it.
type User struct {
	Name   string              `json:"name"`
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`
}

// In reports whether the user is in one of these groups. A nil user is in none.
func (u *User) In(groups ...string) bool {
	return u != nil && slices.ContainsFunc(u.Groups, func(g string) bool { return slices.Contains(groups, g) })
}

// UserFrom returns the user of the request that ctx belongs to. It is nil if ctx is
// no context of a request from the host. Do not change what it points to.
func UserFrom(ctx context.Context) *User {
	if x := exchangeFrom(ctx); x != nil {
		return x.authenticatedUser()
	}
	return nil
}

// RequestInfo is what a request asks for, as kube-apiserver reads its method, path and query: a GET with watch=true is
// a watch, and so is one of the older paths below /api/v1/watch.
type RequestInfo struct {
	// Verb is that of Kubernetes, such as get, list, watch or deletecollection; of a request that is for no object it
	// is the method in lower case.
	Verb string `json:"verb"`
	// The object or list that the request is for. APIVersion is empty if it is for none, as /version is.
	APIGroup    string `json:"apiGroup,omitempty"`
	APIVersion  string `json:"apiVersion,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Resource    string `json:"resource,omitempty"`
	Subresource string `json:"subresource,omitempty"`
	Name        string `json:"name,omitempty"`
}

// RequestInfoFrom returns what the request asks for that ctx belongs to. It is nil if ctx is
// no context of a request from the host, and if its names have more than 4 KiB, which those of
// no object have. Do not change what it points to.
func RequestInfoFrom(ctx context.Context) *RequestInfo {
	if x := exchangeFrom(ctx); x != nil {
		return x.requestInfo()
	}
	return nil
}

// parseHeader returns nil if the header is missing or malformed.
func parseHeader[T any](header string) *T {
	value := new(T)
	if header == "" || json.Unmarshal([]byte(header), value) != nil {
		return nil
	}
	return value
}
