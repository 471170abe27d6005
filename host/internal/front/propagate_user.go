package front

import (
	"unicode/utf16"
	"unicode/utf8"

	"k8s.io/apiserver/pkg/authentication/user"
)

// appendUser appends a user as a JSON object in ASCII. It is called for every
// request, and does not allocate.
func appendUser(dst []byte, u user.Info) []byte {
	dst = append(dst, `{"name":`...)
	dst = appendString(dst, u.GetName())
	if uid := u.GetUID(); uid != "" {
		dst = append(dst, `,"uid":`...)
		dst = appendString(dst, uid)
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
			dst = appendString(dst, key)
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
		dst = appendString(dst, s)
	}
	return append(dst, ']')
}

// appendString appends a JSON string that fits into a header. As in encoding/json,
// bytes that are not UTF-8 become U+FFFD.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			switch {
			case c == '"' || c == '\\':
				dst = append(dst, '\\', c)
			case c < ' ' || c == 0x7f:
				dst = appendEscape(dst, rune(c))
			default:
				dst = append(dst, c)
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		i += size
		if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
			dst = appendEscape(appendEscape(dst, high), low)
		} else {
			dst = appendEscape(dst, r)
		}
	}
	return append(dst, '"')
}

func appendEscape(dst []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'u', hex[r>>12&0xf], hex[r>>8&0xf], hex[r>>4&0xf], hex[r&0xf])
}
