package stagecheck

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"unicode"
)

// checkOddPaths sends paths that a library may take for the one that the stage serves. The host keeps them
// from a stage that claims paths outside of the Kubernetes API; any other must tell them apart, since
// the user was authorized for the path as it came.
func checkOddPaths(ctx context.Context, s *suite) error {
	st, path, err := s.path(ctx)
	if err != nil {
		return err
	}
	if path == "/" {
		return skip("the stage is asked for / alone; name another path with --path")
	}
	served, err := st.do(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return err
	}
	other, err := st.do(ctx, http.MethodGet, path+"-stagecheck", nil, nil)
	if err != nil {
		return err
	}
	alike := !other.handed && other.status == served.status
	for _, odd := range oddPaths(path) {
		a, err := st.do(ctx, http.MethodGet, odd, nil, nil)
		switch {
		case err != nil:
			return err
		case a.handed && a.downstream.Target != odd:
			return want("GET "+odd+" at the next stage, unchanged", "GET %s", a.downstream.Target)
		case !a.handed && a.status < 300 && served.status < 300 && !alike:
			return want(fmt.Sprintf("GET %s handed on as it is, or refused", odd), "%d, as if it were %s", a.status, path)
		}
	}
	return nil
}

// oddPaths are paths that are path to those who clean them.
func oddPaths(path string) []string {
	path = strings.TrimSuffix(path, "/")
	i := strings.LastIndexByte(path, '/')
	dir, last := path[:i], path[i+1:]
	return []string{
		dir + "/./" + last, dir + "/x/../" + last, dir + "/x/%2e%2e/" + last, dir + "//" + last,
		dir + "/x%2f../" + last, dir + "/x/..;y/" + last, dir + "/x%5c..%5c" + last,
	}
}

// checkEncodedPath asks for a path with one character encoded: the host takes it for the same path, as RFC 3986 does.
func checkEncodedPath(ctx context.Context, s *suite) error {
	st, path, err := s.path(ctx)
	if err != nil {
		return err
	}
	at := strings.LastIndexFunc(path, unicode.IsLetter)
	if at < 0 {
		return skip("the path has no letter; name another with --path")
	}
	encoded := fmt.Sprintf("%s%%%02x%s", path[:at], path[at], path[at+1:])
	served, err := st.do(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return err
	}
	got, err := st.do(ctx, http.MethodGet, encoded, nil, nil)
	expected := fmt.Sprintf("the response to GET %s that GET %s gets: %s", encoded, path, served)
	switch {
	case err != nil:
		return want(expected, "%v", err)
	case got.handed != served.handed || got.status != served.status &&
		(got.status == http.StatusNotFound || got.status == http.StatusBadRequest):
		return want(expected, "%s", got)
	}
	return nil
}

// String says what has become of the request.
func (r response) String() string {
	if r.handed {
		return "declined"
	}
	return fmt.Sprintf("%d", r.status)
}
