package front

import (
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/catena-dev/catena/sdk/stagev1/header"
)

// appendUser appends a user as a JSON object in ASCII. It is called for every
// request, and does not allocate.
func appendUser(dst []byte, u user.Info) []byte {
	dst = append(dst, `{"name":`...)
	dst = header.AppendString(dst, u.GetName())
	if uid := u.GetUID(); uid != "" {
		dst = append(dst, `,"uid":`...)
		dst = header.AppendString(dst, uid)
	}
	if groups := u.GetGroups(); len(groups) > 0 {
		dst = append(dst, `,"groups":`...)
		dst = appendStrings(dst, groups)
	}
	if extra := u.GetExtra(); len(extra) > 0 {
		dst = append(dst, `,"extra":`...)
		separator := byte('{')
		for key, values := range extra {
			dst = append(dst, separator)
			dst = header.AppendString(dst, key)
			dst = append(dst, ':')
			dst = appendStrings(dst, values)
			separator = ','
		}
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

func appendStrings(dst []byte, list []string) []byte {
	dst = append(dst, '[')
	for i, s := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = header.AppendString(dst, s)
	}
	return append(dst, ']')
}
