package main

import (
	"net/http"
	"net/url"
	"strings"
)

// target is what the path of a request is about.
type target struct {
	// resource is GROUP/RESOURCE.
	resource string
	// rest follows RESOURCE: nothing for a list, NAME for an object.
	rest []string
}

// targetOf returns the target of a path, false if that is none of an object or a list.
func targetOf(path string) (target, bool) {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	group := ""
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		group, parts = parts[1], parts[3:]
	default:
		return target{}, false // discovery
	}
	// namespaces/NAMESPACE/RESOURCE, but namespaces/NAME and namespaces/NAME/finalize
	if len(parts) > 2 && parts[0] == "namespaces" && parts[2] != "finalize" && parts[2] != "status" {
		parts = parts[2:]
	}
	return target{resource: group + "/" + parts[0], rest: parts[1:]}, parts[0] != ""
}

// whole reports whether it is a list or an object, and not a part of one.
func (t target) whole() bool { return len(t.rest) == 0 || len(t.rest) == 1 && t.rest[0] != "" }

// writes reports whether a request can change a resource. An upgrade is a way into a
// container.
func writes(r *http.Request) bool {
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return r.Header.Get("Upgrade") == ""
	}
	return false
}

// mayBeOld reports whether the client accepts any version of an object or a list, which is
// what resourceVersion=0 means. All other reads want the newest, a given version or
// what comes after it: to response those from memory would be wrong.
func mayBeOld(r *http.Request) bool {
	if r.Method != http.MethodGet || r.Header.Get("Upgrade") != "" || r.Header.Get("Range") != "" {
		return false
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || len(query["resourceVersion"]) != 1 || query.Get("resourceVersion") != "0" {
		return false
	}
	for key := range query {
		switch key {
		case "resourceVersion", "labelSelector", "fieldSelector", "limit", "pretty", "includeObject", "timeoutSeconds", "timeout":
		default:
			return false // watch, continue, resourceVersionMatch, and what we do not know
		}
	}
	return true
}
