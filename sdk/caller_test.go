package sdk_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
)

// A stage gets the response of the next one, to do with it what it wants.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "1")
		w.Header().Set("X-Got", fmt.Sprint(r.Method, " ", r.RequestURI, " ", r.Header["X-Two"], " ", r.Header["X-Hop"]))
		w.Header().Set("Trailer", "X-End")
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write(body)
		w.Header().Set("X-End", "over")
	})
	stage := stagetest.Start(t, sdk.Stage{Name: "through", New: func(env *sdk.Env) (http.Handler, error) {
		env.ClaimPrefix("/")
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			stranger, _ := http.NewRequestWithContext(env.Context(), http.MethodGet, "/", nil)
			if _, err := env.Call.RoundTrip(stranger); err == nil {
				t.Error("a request that does not come from the host was passed on")
			}
			resp, err := env.Call.RoundTrip(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			fmt.Fprint(w, resp.StatusCode, "|", resp.Header.Get("X-Got"), "|", resp.Header["X-Hop"], resp.Header["Connection"], "|",
				string(body), err, "|", resp.Trailer.Get("X-End"))
		}), nil
	}}, stagetest.Options{Next: next})
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, stage.URL+"/a%2Fb?x=%20", io.MultiReader(strings.NewReader("body")))
	r.Header["X-Two"] = []string{"one", "two"}
	r.Header["X-Hop"], r.Header["Connection"] = []string{"mine"}, []string{"X-Hop"}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, _ := io.ReadAll(resp.Body)
	if want := "418|POST /a%2Fb?x=%20 [one two] []|[] []|body<nil>|over"; string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// pieces is a body of which little comes at a time.
type pieces struct{ io.Reader }

func (p pieces) Read(b []byte) (int, error) { return p.Reader.Read(b[:min(len(b), 3)]) }

func TestFrames(t *testing.T) {
	t.Parallel()
	message := func(text string) string { return string(binary.BigEndian.AppendUint32(nil, uint32(len(text)))) + text }
	for name, c := range map[string]struct {
		header http.Header
		body   string
		want   []string
		err    string
	}{
		"JSON": {http.Header{"Content-Type": {"application/json"}}, "{\"a\":1}\n{\"b\":2}\n", []string{"{\"a\":1}\n", "{\"b\":2}\n"}, ""},
		"protobuf": {
			http.Header{"Content-Type": {"application/vnd.kubernetes.protobuf;stream=watch"}},
			message("one") + message("two"), []string{message("one"), message("two")}, "",
		},
		"breaks off": {http.Header{"Content-Type": {"application/json"}}, "{\"a\":1}\n{\"b\"", []string{"{\"a\":1}\n"}, "unexpected EOF"},
		"compressed": {http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}, "x", nil, `encoded as "gzip"`},
		"text":       {http.Header{"Content-Type": {"text/plain"}}, "x\n", nil, `type "text/plain"`},
	} {
		var got []string
		var err error
		for frame, failure := range sdk.Frames(&http.Response{Header: c.header, Body: io.NopCloser(pieces{strings.NewReader(c.body)})}) {
			if err = failure; err == nil {
				got = append(got, string(frame))
			}
		}
		if !slices.Equal(got, c.want) || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q, %v; want %q, %s", name, got, err, c.want, c.err)
		}
	}
}
