package sdk_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
)

// A request looks as it would on the client's own connection: with its address and TLS, and without what the host has added for the stage.
func TestRequestAsTheClientSentIt(t *testing.T) {
	t.Parallel()
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "next has %d bytes", len(body))
	})
	stage := stagetest.Start(t, sdk.Stage{Name: "looking", New: func(env *sdk.Env) (http.Handler, error) {
		env.ClaimPrefix("/")
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/declined":
				env.Next.ServeHTTP(w, r)
				return
			case "/called":
				env.Call.ServeHTTP(w, r)
				return
			}
			_, _ = io.Copy(io.Discard, r.Body) // a connection with what is unread is reset
			host, _, err := net.SplitHostPort(r.RemoteAddr)
			fmt.Fprintf(w, "%s %v %t %q", host, err, r.TLS != nil, r.Header["Expect"])
		}), nil
	}}, stagetest.Options{Next: next})
	large := strings.Repeat("x", 1<<20)
	for _, tc := range []struct{ path, expect, want string }{
		{"/", "", "127.0.0.1 <nil> true []"},
		{"/", "100-continue", `127.0.0.1 <nil> true ["100-continue"]`},
		{"/declined", "", "next has 1048576 bytes"},
		{"/called", "", "next has 1048576 bytes"},
	} {
		header := http.Header{}
		if tc.expect != "" {
			header.Set("Expect", tc.expect)
		}
		got := stage.Do(t, stagetest.Call{Method: http.MethodPost, Path: tc.path, Body: large, Header: header})
		if got.Body != tc.want || got.Declined != (tc.path == "/declined") {
			t.Errorf("%s, Expect %q: %q, declined %t, want %q", tc.path, tc.expect, got.Body, got.Declined, tc.want)
		}
	}
}
