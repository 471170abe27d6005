package kube

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
)

func TestColdCaches(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		verb     string
		refusals int // how often the server refuses before it responds
		timeout  time.Duration
		want     int
		calls    int
		text     string // of the refusals
	}{
		"a list waits":            {"list", 3, deadline, 200, 4, ""},
		"a watch waits":           {"watch", 3, deadline, 200, 4, ""},
		"a warm cache answers":    {"list", 0, deadline, 200, 1, ""},
		"a create is not tried":   {"create", 3, deadline, 429, 1, ""},
		"a cache that stays cold": {"watch", 1 << 30, 0, 429, 1, ""},
		"a cache that has failed": {"list", 1 << 30, deadline, 429, 2, ": failed to list example.com/v1, Kind=Thing: conversion webhook"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			handler := withColdCaches(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if calls++; calls <= tc.refusals {
					w.Header().Set("Retry-After", "1")
					w.WriteHeader(429)
					io.WriteString(w, "storage is (re)init")
					io.WriteString(w, "ializing"+tc.text)
					return
				}
				io.WriteString(w, "one ")
				w.(http.Flusher).Flush()
				io.WriteString(w, "two")
			}), tc.timeout, nil)
			r := httptest.NewRequest("GET", "/apis/example.test/v1/things", nil)
			rec := httptest.NewRecorder()
			handler.ServeHTTP(rec, r.WithContext(request.WithRequestInfo(r.Context(), &request.RequestInfo{IsResourceRequest: true, Verb: tc.verb})))
			wantBody, wantAfter := "one two", ""
			if tc.want == 429 {
				wantBody, wantAfter = "storage is (re)initializing"+tc.text, "1"
			}
			if rec.Code != tc.want || rec.Body.String() != wantBody || rec.Header().Get("Retry-After") != wantAfter || calls != tc.calls {
				t.Errorf("%d %q %v after %d calls", rec.Code, rec.Body, rec.Header(), calls)
			}
		})
	}
}

// A request that waits when the process is replaced is broken off, and so goes to the next
// process. One that comes later is answered.
func TestColdCacheOfAReplacedProcess(t *testing.T) {
	t.Parallel()
	draining := make(chan struct{})
	calls := 0
	handler := withColdCaches(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls++; calls == 1 {
			close(draining)
		}
		w.WriteHeader(429)
	}), deadline, draining)
	ask := func() (rec *httptest.ResponseRecorder, broken any) {
		defer func() { broken = recover() }()
		r := httptest.NewRequest("GET", "/apis/example.test/v1/things", nil)
		rec = httptest.NewRecorder()
		handler.ServeHTTP(rec, r.WithContext(request.WithRequestInfo(r.Context(), &request.RequestInfo{IsResourceRequest: true, Verb: "watch"})))
		return rec, nil
	}
	if _, broken := ask(); broken != http.ErrAbortHandler {
		t.Errorf("while it waits: %v", broken)
	}
	if rec, broken := ask(); broken != nil || rec.Code != 429 || calls != 2 {
		t.Errorf("afterwards: %v, %d after %d calls", broken, rec.Code, calls)
	}
}
