package header

import (
	"unicode/utf16"
	"unicode/utf8"
)

// EscapeJSON returns a JSON text for the value of a header: the characters that such a
// value may not have, DEL and all beyond ASCII, are escaped. In JSON they occur in strings
// only.
func EscapeJSON(text []byte) string {
	const del = 0x7f
	i := 0
	for i < len(text) && text[i] < del {
		i++
	}
	if i == len(text) {
		return string(text)
	}
	out := append(make([]byte, 0, len(text)+len(text)/4), text[:i]...)
	for i < len(text) {
		r, size := utf8.DecodeRune(text[i:])
		i += size
		switch {
		case r < del:
			out = append(out, byte(r))
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = appendEscape(appendEscape(out, high), low)
		default:
			out = appendEscape(out, r)
		}
	}
	return string(out)
}

// AppendString appends a JSON string that fits into a header. As in encoding/json,
// bytes that are not UTF-8 become U+FFFD.
func AppendString(dst []byte, s string) []byte {
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
	return append(dst, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}

const digits = "0123456789abcdef"
