package h1

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/catena-dev/catena/internal/http1"
)

// AppendRequest appends the head of r as a stage gets it, without the empty line that
// ends it. The target goes out as it came in: no segment is cleaned, no escape resolved.
// Left out are the hop-by-hop headers, which are those that the Connection header names
// too, those that only the host may set, and the client's credentials. If expect is set, the stage has to ask for
// the body with "100 Continue".
//
// A Connection header comes from the client, and must not remove what the host itself has
// put into r: headers for which hostHeader returns true are passed on in any case.
func AppendRequest(dst []byte, r *http.Request, expect bool, hostHeader interface{ HostHeader(key string) bool }) ([]byte, error) {
	if !http1.IsToken(r.Method) {
		return dst, fmt.Errorf("invalid method %q", r.Method)
	}
	dst = append(dst, r.Method...)
	dst = append(dst, ' ')
	dst = appendTarget(dst, r)
	dst = append(dst, " HTTP/1.1\r\n"...)
	dst = http1.AppendField(dst, "Host", r.Host)

	connection := headersIn(r.Header["Connection"])
	for key, values := range r.Header {
		if dropped(key) {
			continue
		}
		if connection[key] && (hostHeader == nil || !hostHeader.HostHeader(key)) {
			continue
		}
		for _, v := range values {
			if v, empty := withoutToken(key, v); !empty {
				dst = http1.AppendField(dst, key, v)
			}
		}
	}
	if http1.Listed(r.Header["Te"], "trailers") {
		dst = append(dst, "Te: trailers\r\n"...)
	}
	if proto := UpgradeOf(r); proto != "" {
		dst = append(dst, "Connection: Upgrade\r\n"...)
		dst = http1.AppendField(dst, "Upgrade", proto)
	}
	return appendFraming(dst, r, expect), nil
}

// dropped reports whether a header of a request is not passed on as it is.
func dropped(key string) bool {
	switch key {
	case "Host", "Content-Length", "Expect":
		return true // appended from what net/http has made of them
	}
	return http1.HopByHop(key) || HostOnly(key) || identifies(key) || !http1.IsToken(key)
}

// appendFraming appends how the body of r is delimited.
func appendFraming(dst []byte, r *http.Request, expect bool) []byte {
	switch {
	case r.ContentLength > 0:
		dst = append(dst, "Content-Length: "...)
		dst = strconv.AppendInt(dst, r.ContentLength, 10)
		dst = append(dst, '\r', '\n')
	case r.ContentLength < 0:
		dst = append(dst, "Transfer-Encoding: chunked\r\n"...)
		for key := range r.Trailer {
			if TrailerAllowed(key) {
				dst = http1.AppendField(dst, "Trailer", key)
			}
		}
	case len(r.Header["Content-Length"]) > 0:
		dst = append(dst, "Content-Length: 0\r\n"...)
	}
	if expect {
		dst = append(dst, "Expect: 100-continue\r\n"...)
	}
	return dst
}

// appendTarget appends the target of r. Bytes that would end a target are escaped:
// HTTP/2 lets a space through in a query.
func appendTarget(dst []byte, r *http.Request) []byte {
	begin := len(dst)
	u := r.URL
	switch path := u.EscapedPath(); {
	case u.Opaque != "" && u.Scheme != "":
		dst = append(append(append(dst, u.Scheme...), ':'), u.Opaque...)
	case path != "":
		dst = append(dst, path...)
	case r.Method == http.MethodConnect && u.Host != "":
		dst = append(dst, u.Host...)
	case u.Host != "" && u.Scheme != "":
		// An absolute target without a path: "/" would be another path than the one
		// that the host has authorized.
		dst = append(append(append(dst, u.Scheme...), "://"...), u.Host...)
	default:
		dst = append(dst, '/')
	}
	if u.ForceQuery || u.RawQuery != "" {
		dst = append(append(dst, '?'), u.RawQuery...)
	}
	for _, c := range dst[begin:] {
		if c <= ' ' || c == 0x7f {
			target := string(dst[begin:])
			return appendEscaped(dst[:begin], target)
		}
	}
	return dst
}

func appendEscaped(dst []byte, target string) []byte {
	for _, c := range []byte(target) {
		if c <= ' ' || c == 0x7f {
			dst = fmt.Appendf(dst, "%%%02X", c)
		} else {
			dst = append(dst, c)
		}
	}
	return dst
}
