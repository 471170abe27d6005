package h1

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk/stagev1/header"
)

// FuzzRequest checks that whatever is in a request, the stage reads exactly one
// request with the target, the body and the identity that the relay has meant.
func FuzzRequest(f *testing.F) {
	f.Add("GET", "/a%2fb", "q=1", "h", "Accept", "x", "")
	f.Add("POST", "/", "a b", "h\r\nX-Catena-User: f", "X", "y\r\nX-Catena-User: f", "body")
	f.Add("GET /", " HTTP/1.1\r\n\r\n", "", "", "Content-Length", "5", "b")
	f.Add("PUT", "/", "", "h", "X_Remote_User", "v", "b")
	f.Fuzz(func(t *testing.T, method, path, query, host, key, value, body string) {
		r := &http.Request{Method: method, Host: host, URL: &url.URL{Path: path, RawQuery: query},
			Header: http.Header{key: {value}}, ContentLength: int64(len(body)), ProtoMajor: 2}
		head, err := AppendRequest(nil, r, false, nil)
		if err != nil {
			return
		}
		head = append(head, "X-Catena-User: {\"name\":\"host\"}\r\n\r\n"...)
		in := bufio.NewReader(bytes.NewReader(append(head, body...)))
		got, err := http.ReadRequest(in)
		if err != nil {
			return // refused by the stage
		}
		if got.Method != method || got.URL.RawQuery != strings.NewReplacer(" ", "%20").Replace(query) && !strings.ContainsFunc(query, control) {
			t.Errorf("sent %q %q?%q, stage reads %q %q", method, path, query, got.Method, got.RequestURI)
		}
		if users := got.Header[header.User]; len(users) != 1 || users[0] != `{"name":"host"}` {
			t.Errorf("users: %q", users)
		}
		for k := range got.Header {
			if HostOnly(k) && k != header.User {
				t.Errorf("header %q got through", k)
			}
		}
		text, err := io.ReadAll(got.Body)
		if err != nil || string(text) != body {
			t.Errorf("body %q, %v; want %q", text, err, body)
		}
		if in.Buffered() != 0 {
			t.Error("something follows the request")
		}
	})
}

func control(r rune) bool { return r < ' ' || r == 0x7f }

// A Connection header may list as many names as a request has headers; the time for it grows no faster than its length.
func TestLongConnectionHeader(t *testing.T) {
	t.Parallel()
	const names = 100_000
	r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/"}, Header: http.Header{"Connection": {strings.Repeat("x,", names) + "last"}, "Last": {""}}}
	for i := range names {
		r.Header["K"+strconv.Itoa(i)] = []string{""}
	}
	out, err := AppendRequest(nil, r, false, nil) // minutes, if it looked for each header in the list
	if err != nil || bytes.Contains(out, []byte("\r\nLast:")) || !bytes.Contains(out, []byte("\r\nK1:")) {
		t.Error("a header that Connection lists is passed on, or another is not", err)
	}
}
