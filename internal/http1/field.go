// Package http1 is the syntax of HTTP/1.1 (RFC 9112) that the host and the stages' servers have in common: only what a
// correct sender writes, and nothing that two receivers could understand differently.
package http1

import (
	"fmt"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
)

// Field is a header line. The key is in canonical form.
type Field struct{ Key, Value string }

// ParseField reads a header line, without its end.
func ParseField(line string) (Field, error) {
	key, value, ok := strings.Cut(line, ":")
	if !ok || !IsToken(key) {
		return Field{}, fmt.Errorf("invalid header line %.40q", line)
	}
	if !IsText(value) {
		return Field{}, fmt.Errorf("invalid byte in header %.40q", key)
	}
	return Field{textproto.CanonicalMIMEHeaderKey(key), textproto.TrimString(value)}, nil
}

// ParseLength reads the value of a Content-Length header.
func ParseLength(s string) (int64, error) {
	if !IsDigits(s) {
		return 0, fmt.Errorf("invalid length %.40q", s)
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("invalid length %.40q", s)
	}
	return n, nil
}

// IsDigits reports whether s has digits and nothing else.
func IsDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// IsText reports whether s has no control characters but tabs.
func IsText(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// BodyAllowed reports whether a response with that status can have a body.
func BodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// Elements iterates over the elements of a comma-separated header, trimmed.
func Elements(values []string, yield func(string) bool) {
	for _, v := range values {
		for v != "" {
			var item string
			item, v, _ = strings.Cut(v, ",")
			if item = textproto.TrimString(item); item != "" && !yield(item) {
				return
			}
		}
	}
}

// Listed reports whether a comma-separated header has the element, in any case.
func Listed(values []string, name string) bool {
	found := false
	Elements(values, func(item string) bool {
		found = strings.EqualFold(item, name)
		return !found
	})
	return found
}

// HopByHop reports whether a header, in canonical form, concerns one connection only.
func HopByHop(key string) bool {
	switch key {
	case "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
		"Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// AppendField appends a header line. Line breaks in the value cannot come out of
// a parsed message; they become spaces.
func AppendField(dst []byte, key, value string) []byte {
	dst = append(dst, key...)
	dst = append(dst, ": "...)
	if strings.ContainsAny(value, "\r\n\x00") {
		value = strings.NewReplacer("\r", " ", "\n", " ", "\x00", " ").Replace(value)
	}
	dst = append(dst, value...)
	return append(dst, '\r', '\n')
}

// IsToken reports whether s is a token of RFC 9110: a method or the name of a header.
func IsToken(s string) bool {
	for i := range len(s) {
		if !tokenByte[s[i]] {
			return false
		}
	}
	return s != ""
}

// tokenByte are the bytes that a token may have.
var tokenByte = func() (t [256]bool) {
	for _, c := range []byte("!#$%&'*+-.^_`|~0123456789") {
		t[c] = true
	}
	for c := byte('a'); c <= 'z'; c++ {
		t[c], t[c-'a'+'A'] = true, true
	}
	return t
}()
