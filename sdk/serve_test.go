package sdk_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
)

func TestHandler(t *testing.T) {
	user := &sdk.User{Name: "jürgen\n", UID: "7", Groups: []string{"a,b", "c"}, Extra: map[string][]string{"odd/Key %": {"", "x"}}}
	both(t, func(t *testing.T, start start) {
		stage := start(t, stagetest.Options{Config: testConfig{Greeting: "good day"}, User: user})
		if _, body := get(t, stage.URL+"/hello"); body != "good day\n" {
			t.Errorf("hello: %q", body)
		}
		var got *sdk.User
		if _, body := get(t, stage.URL+"/user"); json.Unmarshal([]byte(body), &got) != nil || !cmp.Equal(user, got) {
			t.Errorf("user: %s", body)
		}
		if resp, _ := get(t, stage.URL+"/trailer"); resp.Trailer.Get("X-Sum") != "4" {
			t.Errorf("trailer: %v", resp.Trailer)
		}
		if resp, _ := get(t, stage.URL+"/elsewhere"); resp.StatusCode != http.StatusNotFound || stage.Declined() != 1 {
			t.Errorf("elsewhere: %s, %d declined", resp.Status, stage.Declined())
		}
		for header, want := range map[string]string{"": "false false", "600000": "true true", "9223372036854775807": "false false", "x": "false false"} {
			req, err := http.NewRequest(http.MethodGet, stage.URL+"/deadline", nil)
			if err != nil {
				t.Fatal(err)
			}
			if header != "" {
				req.Header.Set("X-Catena-Timeout", header)
			}
			if _, body := do(t, req); body != want+"\n" {
				t.Errorf("deadline with timeout %q: %s, want %s", header, body, want)
			}
		}
	})
}

// A handler that panics or breaks the rules spoils its own response and nothing else.
func TestHandlerMisbehaves(t *testing.T) {
	both(t, func(t *testing.T, start start) {
		stage := start(t, stagetest.Options{})
		for _, path := range []string{"/panic", "/decline-read"} {
			resp, err := http.Post(stage.URL+path, "", strings.NewReader("body"))
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != http.StatusInternalServerError || !strings.Contains(string(body), "panic") || resp.Header.Get("X-Half") != "" {
				t.Errorf("%s: %s %v %q", path, resp.Status, resp.Header, body)
			}
		}
		for _, path := range []string{"/panic-late", "/decline-late", "/abort"} {
			resp, err := http.Get(stage.URL + path)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK && err == nil {
				t.Errorf("%s: the response looks complete: %s %q", path, resp.Status, body)
			}
		}
		if resp, _ := get(t, stage.URL+"/panic-hijacked"); resp.StatusCode != http.StatusBadGateway {
			t.Errorf("panic-hijacked: %s", resp.Status)
		}
		if resp, _ := get(t, stage.URL+"/hello"); resp.StatusCode != http.StatusOK {
			t.Errorf("writtenAfterDecline: %s", resp.Status)
		}
		for _, want := range []string{`"panic":"handler"`, `"panic":"late"`, `"panic":"hijacked"`, "stage_test.go", "after its response has begun", "after reading from its body"} {
			eventually(t, "the log has "+want, func() bool { return strings.Contains(stage.Log(), want) })
		}
	})
}

// The stage asks for a body when it first reads of it, and not before.
func TestContinue(t *testing.T) {
	both(t, func(t *testing.T, start start) {
		if stage := start(t, stagetest.Options{}); stage.PID() == 0 {
			expectContinue(t, stage)
		}
	})
}

func expectContinue(t *testing.T, stage *stagetest.Stage) {
	t.Helper()
	for path, want := range map[string]string{
		"/echo":    "HTTP/1.1 100 Continue\r\n",
		"/decline": "HTTP/1.1 404 Not Found\r\n",
		"/hello":   "HTTP/1.1 200 OK\r\n",
	} {
		conn, err := net.Dial("unix", stage.Socket())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n", path)
		r := bufio.NewReader(conn)
		line, err := r.ReadString('\n')
		if err != nil || line != want {
			t.Errorf("%s: %q, %v, want %q", path, line, err, want)
		}
		if path == "/decline" {
			head, _ := io.ReadAll(r) // to the end: the connection must not be used again
			for _, field := range []string{"X-Catena-Decline: 1\r\n", "Content-Length: 0\r\n", "Connection: close\r\n"} {
				if !strings.Contains(string(head), field) {
					t.Errorf("decline without %q: %q", field, head)
				}
			}
		}
		conn.Close()
	}
}

// A decline of a request whose small body has been sent leaves a connection in order.
func TestDeclineKeepsConnection(t *testing.T) {
	t.Parallel()
	stage := inProcess(t, stagetest.Options{})
	conn, err := net.Dial("unix", stage.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	for range 3 {
		fmt.Fprintf(conn, "POST /decline HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", 64<<10, strings.Repeat("x", 64<<10))
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Header.Get("X-Catena-Decline") == "" || resp.Close {
			t.Errorf("%s %v", resp.Status, resp.Header)
		}
	}
}

// The end of the client reaches the handler.
func TestCancellation(t *testing.T) {
	both(t, func(t *testing.T, start start) {
		stage := start(t, stagetest.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, stage.URL+"/wait", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		cancel()
		eventually(t, "the handler ends", func() bool { return strings.Contains(notes(stage), "request ended") })
	})
}

// notes returns what the test stage has written.
func notes(stage *stagetest.Stage) string {
	text, _ := os.ReadFile(filepath.Join(filepath.Dir(stage.Socket()), "files", "notes"))
	return string(text)
}

// Idle connections stay open, even through Drain: only the host closes them.
func TestIdleConnection(t *testing.T) {
	t.Parallel()
	stage := inProcess(t, stagetest.Options{})
	conn, err := net.Dial("unix", stage.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stage.Drain(t, patience)
	r := bufio.NewReader(conn)
	for range 2 {
		fmt.Fprint(conn, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(r, nil)
		if err != nil || resp.Close {
			t.Fatal(err, resp)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
	}
}
