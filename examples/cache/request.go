package main

import (
	"net/http"
	"net/url"
)

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
