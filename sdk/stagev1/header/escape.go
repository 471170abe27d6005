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
	const digits = "0123456789abcdef"
	out := append(make([]byte, 0, len(text)+len(text)/4), text[:i]...)
	escape := func(unit rune) {
		out = append(out, '\\', 'u', digits[unit>>12&15], digits[unit>>8&15], digits[unit>>4&15], digits[unit&15])
	}
	for i < len(text) {
		r, size := utf8.DecodeRune(text[i:])
		i += size
		switch {
		case r < del:
			out = append(out, byte(r))
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			escape(high)
			escape(low)
		default:
			escape(r)
		}
	}
	return string(out)
}
