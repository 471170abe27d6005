package sdk_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
)

// seen is what a stage downstream sees of a request.
type seen struct {
	Method, URI, Host, Body string
	List                    []string
	More, Forwarded         string
	Internal                []string
}

// mirror responds with what it sees.
func mirror(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s := seen{
		Method: r.Method, URI: r.URL.RequestURI(), Host: r.Host, Body: string(body),
		List: r.Header["X-List"], More: r.Header.Get("X-More"), Forwarded: r.Header.Get("X-Forwarded-For"),
	}
	for key := range r.Header {
		if strings.HasPrefix(key, "X-Catena-") || key == "Authorization" {
			s.Internal = append(s.Internal, key)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s)
}

// Next declines exactly if request and response are untouched.
func TestNextMatrix(t *testing.T) {
	same := func(path string) seen {
		return seen{Method: "POST", URI: path + "?q=1;2", Host: "example.com", Body: "body", List: []string{"a", "b"}, Forwarded: "192.0.2.1"}
	}
	with := func(path string, change func(*seen)) seen {
		s := same(path)
		change(&s)
		return s
	}
	cases := []struct {
		path    string
		decline bool
		want    seen
		header  string
	}{
		{path: "/elsewhere", decline: true},
		{path: "/odd//path/..%2f%20x", decline: true},
		{path: "/context", decline: true},
		{path: "/clone", decline: true},
		{path: "/drop-internal", decline: true},
		{path: "/decline", decline: true},
		{path: "/decline-header", decline: true},
		{path: "/deaf", decline: true},
		{path: "/write-declined", decline: true},
		{path: "/call"},
		{path: "/call//path/..%2f%20x"},
		{path: "/wrapped", header: "X-Wrapped"},
		{path: "/lost-context", header: "X-Wrapped"},
		{path: "/response-header", header: "X-Mine"},
		{path: "/change-method", want: with("/change-method", func(s *seen) { s.Method = "PUT" })},
		{path: "/change-path", want: with("/other%20path", func(*seen) {})},
		{path: "/change-in-place", want: with("/in/place", func(*seen) {})},
		{path: "/change-query", want: with("/", func(s *seen) { s.URI = "/change-query?a=1;b" })},
		{path: "/change-host", want: with("/change-host", func(s *seen) { s.Host = "other" })},
		{path: "/change-header", want: with("/change-header", func(s *seen) { s.More = "1" })},
		{path: "/append-header", want: with("/append-header", func(s *seen) { s.List = []string{"a", "b", "c"} })},
		{path: "/swap-header", want: with("/swap-header", func(s *seen) { s.List = []string{"b", "a"} })},
		{path: "/drop-header", want: with("/drop-header", func(s *seen) { s.List = nil })},
		{path: "/change-body", want: with("/change-body", func(s *seen) { s.Body = "other" })},
	}
	both(t, func(t *testing.T, start start) {
		stage := start(t, stagetest.Options{Next: http.HandlerFunc(mirror)})
		for _, tc := range cases {
			before := stage.Declined()
			req, err := http.NewRequest(http.MethodPost, stage.URL+tc.path+"?q=1;2", strings.NewReader("body"))
			if err != nil {
				t.Fatal(err)
			}
			req.Host = "example.com"
			req.Header = http.Header{"X-List": {"a", "b"}, "X-Forwarded-For": {"192.0.2.1"}}
			resp, body := do(t, req)
			if declined := stage.Declined() > before; declined != tc.decline {
				t.Errorf("%s: declined: %v", tc.path, declined)
			}
			var got seen
			if err := json.Unmarshal([]byte(body), &got); err != nil {
				t.Errorf("%s: %v: %s", tc.path, resp.Status, body)
				continue
			}
			want := tc.want
			if want.Method == "" {
				want = same(tc.path)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: what the next stage sees (-want +got):\n%s", tc.path, diff)
			}
			if tc.header != "" && resp.Header.Get(tc.header) == "" {
				t.Errorf("%s: %s is missing: %v", tc.path, tc.header, resp.Header)
			}
			if resp.Header.Get("X-Mine") != "" && tc.header != "X-Mine" {
				t.Errorf("%s: a header of the declining stage is in the response", tc.path)
			}
		}
	})
}

func do(t *testing.T, req *http.Request) (*http.Response, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true, ExpectContinueTimeout: time.Minute}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatalf("%s: %v", req.URL.Path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s: %v", req.URL.Path, err)
	}
	return resp, string(body)
}

func get(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return do(t, req)
}

// A large body is handed on whole, by decline (the stage has not asked for it) and by
// call (it flows through the stage), and connections stay in order writtenAfterDecline.
func TestNextLargeBody(t *testing.T) {
	both(t, func(t *testing.T, start start) {
		body := bytes.Repeat([]byte("0123456789abcdef"), 1<<17) // 2 MiB
		sum := func(w http.ResponseWriter, r *http.Request) {
			got, err := io.ReadAll(r.Body)
			fmt.Fprintln(w, len(got), bytes.Equal(got, body), err)
		}
		stage := start(t, stagetest.Options{Next: http.HandlerFunc(sum)})
		for _, path := range []string{"/elsewhere", "/call", "/decline", "/wrapped", "/elsewhere"} {
			for _, unknown := range []bool{false, true} {
				req, err := http.NewRequest(http.MethodPut, stage.URL+path, bytes.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				if unknown {
					req.ContentLength = -1
				}
				if _, got := do(t, req); got != fmt.Sprintln(len(body), true, nil) {
					t.Errorf("%s, length unknown: %v: the next stage got %s", path, unknown, got)
				}
			}
		}
		if got := stage.Declined(); got != 6 {
			t.Errorf("%d declines, want 6", got)
		}
	})
}

// A stage that has read the beginning of a body hands on the rest.
func TestNextAfterRead(t *testing.T) {
	both(t, func(t *testing.T, start start) {
		stage := start(t, stagetest.Options{Next: http.HandlerFunc(mirror)})
		req, err := http.NewRequest(http.MethodPost, stage.URL+"/read-some", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = -1
		var got seen
		if resp, body := do(t, req); json.Unmarshal([]byte(body), &got) != nil || got.Body != "ody" {
			t.Errorf("%s: %s", resp.Status, body)
		}
	})
}

// A body that its client holds back flows when the last stage wants it, and not before.
func TestNextContinue(t *testing.T) {
	both(t, func(t *testing.T, start start) {
		stage := start(t, stagetest.Options{Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.RawQuery == "read" {
				_, _ = io.Copy(io.Discard, r.Body)
			}
		})})
		for _, path := range []string{"/elsewhere", "/call", "/wrapped"} {
			for query, want := range map[string]string{"": "HTTP/1.1 200 OK\r\n", "?read": "HTTP/1.1 100 Continue\r\n"} {
				conn, err := net.Dial("tcp", strings.TrimPrefix(stage.URL, "http://"))
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(conn, "PUT %s%s HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\nExpect: 100-continue\r\n\r\n", path, query)
				if line, err := bufio.NewReader(conn).ReadString('\n'); line != want {
					t.Errorf("%s%s: %q, %v, want %q", path, query, line, err, want)
				}
				conn.Close()
			}
		}
	})
}

// A failure downstream is an error that a client can read, not a hang.
func TestNextFails(t *testing.T) {
	both(t, func(t *testing.T, start start) {
		stage := start(t, stagetest.Options{Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/deadline-next" {
				<-r.Context().Done()
				return
			}
			panic(http.ErrAbortHandler)
		})})
		for path, want := range map[string]int{
			"/call":          http.StatusBadGateway,
			"/deadline-next": http.StatusGatewayTimeout,
			"/stranger":      http.StatusInternalServerError,
		} {
			resp, body := get(t, stage.URL+path)
			if resp.StatusCode != want || resp.Header.Get("Retry-After") != "" {
				t.Errorf("%s: %s, Retry-After %q", path, resp.Status, resp.Header.Get("Retry-After"))
			}
			status := map[string]any{}
			if err := json.Unmarshal([]byte(body), &status); err != nil || status["kind"] != "Status" {
				t.Errorf("%s: %q is no Status", path, body)
			}
		}
	})
}

// What a stage asks in its own name gets to the server, and to the delegate it names.
func TestHostCalls(t *testing.T) {
	both(t, func(t *testing.T, start start) {
		respond := func(text string) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, text, " ", r.URL.Path) })
		}
		stage := start(t, stagetest.Options{
			API:       respond("api"),
			Delegates: []sdk.Delegate{{Name: "other", Handler: respond("other")}},
		})
		for path, want := range map[string]string{"/api": "api /version", "/delegate": "other /delegate"} {
			if resp, body := get(t, stage.URL+path); body != want {
				t.Errorf("%s: %s %q, want %q", path, resp.Status, body, want)
			}
		}
	})
}
