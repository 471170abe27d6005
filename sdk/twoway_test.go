package sdk_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// A handler may begin its response before it reads the body, also if the host sends the
// body only when it is asked for.
func TestResponseBeginsBeforeTheBodyIsRead(t *testing.T) {
	t.Parallel()
	stage := stagetest.Start(t, sdk.Stage{Name: "echo", New: func(env *sdk.Env) (http.Handler, error) {
		env.Claim("/echo")
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "you said: ")
			n, err := io.Copy(io.Discard, r.Body)
			fmt.Fprintln(w, n, err)
		}), nil
	}}, stagetest.Options{})
	for name, body := range map[string]io.Reader{
		"short":             strings.NewReader("hello"),
		"long":              strings.NewReader(strings.Repeat("x", 100_000)),
		"of unknown length": io.MultiReader(strings.NewReader("hello")),
	} {
		r, err := http.Post(stage.URL+"/echo", "text/plain", body)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		want := "you said: 5 <nil>\n"
		if name == "long" {
			want = "you said: 100000 <nil>\n"
		}
		if err != nil || string(text) != want {
			t.Errorf("%s: response is %q (%v), want %q", name, text, err, want)
		}
	}
}

// A handler may begin its response, and read the body then, where the client's protocol has two independent directions:
// the body is asked for before the response begins.
func TestDuplex(t *testing.T) {
	both(t, func(t *testing.T, start start) {
		stage := start(t, stagetest.Options{})
		for _, tc := range []struct {
			duplex bool
			want   []int
		}{
			{true, []int{http.StatusContinue, http.StatusOK}},
			{false, []int{http.StatusOK}},
		} {
			conn, err := net.Dial("unix", stage.Socket())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(patience))
			head := "POST /dialog HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n"
			if tc.duplex {
				head += stagev1.HeaderDuplex + ": true\r\n"
			}
			_, _ = io.WriteString(conn, head+"\r\n")
			in := bufio.NewReader(conn)
			var resp *http.Response
			for _, status := range tc.want {
				if resp, err = http.ReadResponse(in, nil); err != nil || resp.StatusCode != status {
					t.Fatalf("duplex %t: %v, %v", tc.duplex, resp, err)
				}
			}
			answers := bufio.NewReader(resp.Body)
			want := []string{"READY\n"}
			if tc.duplex {
				want = []string{"READY\n", "ONE\n", "TWO\n"}
			}
			for i, line := range want {
				if got, err := answers.ReadString('\n'); got != line {
					t.Fatalf("duplex %t: %q, %v, want %q", tc.duplex, got, err, line)
				}
				_, _ = io.WriteString(conn, []string{"4\r\none\n\r\n", "4\r\ntwo\n\r\n", "0\r\n\r\n"}[i])
			}
			if rest, err := io.ReadAll(answers); len(rest) > 0 || err != nil {
				t.Errorf("duplex %t: %q, %v", tc.duplex, rest, err)
			}
		}
	})
}

// dialog answers each line of the body, after a first one of its own.
func dialog(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, "READY\n")
	_ = http.NewResponseController(w).Flush()
	for in := bufio.NewScanner(r.Body); in.Scan(); {
		fmt.Fprintln(w, strings.ToUpper(in.Text()))
		_ = http.NewResponseController(w).Flush()
	}
}
