package apiserver

import (
	"context"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/catena-dev/catena/sdk"
)

// hostUser is the user of a request as the host names it, which is parsed on demand: most
// requests that only read are answered without that. One that cannot be parsed has no name and
// no groups.
type hostUser struct {
	ctx    context.Context
	header string // of the host; empty if it names none
}

var _ user.Info = (*hostUser)(nil)

func (u *hostUser) get() sdk.User {
	if named := sdk.UserFrom(u.ctx); named != nil {
		return *named
	}
	return sdk.User{}
}

// GetName does without the rest: the metrics of each request ask for the name, and the host writes that first.
func (u *hostUser) GetName() string {
	rest, first := strings.CutPrefix(u.header, `{"name":"`)
	if name, rest, ends := strings.Cut(rest, `"`); first && ends && rest != "" && !strings.Contains(name, `\`) {
		return name
	}
	return u.get().Name
}

func (u *hostUser) GetUID() string { return u.get().UID }

func (u *hostUser) GetGroups() []string { return u.get().Groups }

func (u *hostUser) GetExtra() map[string][]string { return u.get().Extra }

// String keeps the context out of logs.
func (u *hostUser) String() string { return u.GetName() }
