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

// parseUser returns nil if the header is missing or malformed.
func parseUser(header string) *User {
	u := &User{}
	if header == "" || json.Unmarshal([]byte(header), u) != nil {
		return nil
	}
	return u
}
