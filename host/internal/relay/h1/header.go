package h1

import (
	"net/http"
	"net/textproto"
	"strings"

	"github.com/catena-dev/catena/internal/http1"
	"github.com/catena-dev/catena/sdk/stagev1/header"
)

const remotePrefix = "X-Remote-"

// HostOnly reports whether only the host may set a header: X-Catena-* and X-Remote-*, in
// any case. Servers that are not written in Go may take "_" for "-", so it counts as that.
func HostOnly(key string) bool {
	return hasPrefixFold(key, header.Prefix) || hasPrefixFold(key, remotePrefix)
}

// identifies reports whether a header of a request is for the host's filters, which know by it who makes the request or in whose
// name. They remove what they have used; no other server is to take the rest for more than text.
func identifies(key string) bool {
	return hasPrefixFold(key, "Impersonate-") || len(key) == len(authorization) && hasPrefixFold(key, authorization)
}

const (
	authorization     = "Authorization"
	webSocketProtocol = "Sec-Websocket-Protocol"
	// bearerProtocol begins the subprotocol of WebSocket in which browsers send a bearer token.
	bearerProtocol = "base64url.bearer.authorization.k8s.io."
)

// withoutToken returns what a header of a request has besides a token of the client: one in a subprotocol is left out. Kubernetes' filter
// removes it only if it is how the client was authenticated.
func withoutToken(key, value string) (rest string, empty bool) {
	if len(key) != len(webSocketProtocol) || !hasPrefixFold(key, webSocketProtocol) || !hasToken(value) {
		return value, false
	}
	var kept []string
	for item := range strings.SplitSeq(value, ",") {
		if !hasToken(item) {
			kept = append(kept, textproto.TrimString(item))
		}
	}
	return strings.Join(kept, ", "), len(kept) == 0
}

func hasToken(s string) bool { return strings.Contains(strings.ToLower(s), bearerProtocol) }

// ForHost reports whether a header of a response is meant for the host: X-Catena-*.
func ForHost(key string) bool { return hasPrefixFold(key, header.Prefix) }

func hasPrefixFold(key, prefix string) bool {
	if len(key) < len(prefix) {
		return false
	}
	for i := range len(prefix) {
		a, b := key[i], prefix[i]
		if a == '_' {
			a = '-'
		}
		if a != b && (a|0x20 != b|0x20 || b|0x20 < 'a' || b|0x20 > 'z') {
			return false
		}
	}
	return true
}

// TrailerAllowed reports whether a field may be passed on as a trailer.
func TrailerAllowed(key string) bool {
	key = textproto.CanonicalMIMEHeaderKey(key)
	return http1.IsToken(key) && !http1.HopByHop(key) && !HostOnly(key) && !identifies(key) &&
		key != webSocketProtocol && key != "Content-Length" && key != "Host"
}

// headersIn returns the elements of a comma-separated header as names of headers, or nil. A client can send some
// hundred thousand.
func headersIn(values []string) map[string]bool {
	var names map[string]bool
	http1.Elements(values, func(item string) bool {
		if names == nil {
			names = map[string]bool{}
		}
		names[textproto.CanonicalMIMEHeaderKey(item)] = true
		return true
	})
	return names
}

// UpgradeOf returns the protocol to which a request asks to switch, or "".
func UpgradeOf(r *http.Request) string {
	offer := r.Header["Upgrade"]
	if len(offer) == 0 || r.ProtoMajor != 1 || r.ProtoMinor == 0 || !http1.Listed(r.Header["Connection"], "upgrade") {
		return ""
	}
	return offer[0]
}
