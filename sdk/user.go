package sdk

import (
	"context"
	"encoding/json"
)

// User is who made a request, as the host has authenticated it.
type User struct {
	Name   string              `json:"name"`
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`
}

// UserFrom returns the user of the request that ctx belongs to. It is nil if ctx is
// no context of a request from the host. Do not change what it points to.
func UserFrom(ctx context.Context) *User {
	if x := exchangeFrom(ctx); x != nil {
		return x.from()
	}
	return nil
}

// parseUser returns nil for what no host would send.
func parseUser(header string) *User {
	u := &User{}
	if header == "" || json.Unmarshal([]byte(header), u) != nil {
		return nil
	}
	return u
}
