package relay

import (
	"net/http"
	"strings"

	"github.com/catena-dev/catena/host/internal/relay/h1"
)

// Browsers take some headers of a response for what holds for all that its origin serves: where to find it, what to
// keep or forget of it, where to report about it. A stage that has no paths of the Kubernetes API does not speak for
// that. Such headers are made up each year, so this is a list of those that are about the response itself.

// ofResponse reports whether a header of a response to a request for path is about that response or, a cookie, about
// what is below it.
func ofResponse(f h1.Field, path string) bool {
	switch f.Key {
	case "Accept-Patch", "Accept-Post", "Accept-Ranges", "Age", "Allow", "Cache-Control", "Date", "Deprecation", "Digest",
		"Etag", "Expires", "Idempotency-Key", "Last-Modified", "Link", "Location", "Permissions-Policy", "Pragma",
		"Preference-Applied", "Referrer-Policy", "Refresh", "Repr-Digest", "Request-Id", "Retry-After", "Server",
		"Server-Timing", "Sourcemap", "Sunset", "Timing-Allow-Origin", "Traceparent", "Tracestate", "Vary", "Via",
		"Want-Digest", "Warning", "Www-Authenticate":
		return true
	case "Set-Cookie":
		return scoped(cookiePath(f.Value), path)
	case "X-Dns-Prefetch-Control", "X-Sendfile", "X-Lighttpd-Send-File", "X-Reproxy-Url":
		return false // three of them are orders to a proxy in front of the host
	}
	family, _, _ := strings.Cut(f.Key, "-")
	switch family {
	case "X":
		return !strings.HasPrefix(f.Key, "X-Accel-") // as these
	case "Content", "Cross", "Docker", "Grpc", "Mcp", "Odata", "Ratelimit":
		return true
	}
	return strings.HasPrefix(f.Key, "Sec-Websocket-")
}

// cookiePath is the path to which a cookie is to be sent; empty if its text leaves that to the browser, or means that
// other hosts get it, too.
func cookiePath(text string) (path string) {
	seen := false
	_, attributes, _ := strings.Cut(text, ";")
	for attribute := range strings.SplitSeq(attributes, ";") {
		name, value, _ := strings.Cut(attribute, "=")
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "path":
			if seen { // browsers go by the last one, even if it is empty
				return ""
			}
			path, seen = strings.TrimSpace(value), true
		case "domain":
			return ""
		}
	}
	return path
}

// scoped reports whether a directory has the path, and is not one that others have a part of: the root, and those of
// API groups and of pages for operators.
func scoped(dir, path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(dir, "/"), "/")
	switch first {
	case "", "apis", "debug":
		return false
	}
	return strings.HasPrefix(path+"/", strings.TrimSuffix(dir, "/")+"/")
}

// worksForOthers reports whether a browser that asks for a service worker, which handles all requests for what is in
// the directory of its script, would get one for paths of others.
func worksForOthers(r *http.Request) bool {
	path := r.URL.Path
	return r.Header["Service-Worker"] != nil && !scoped(path[:strings.LastIndexByte(path, '/')+1], path)
}
