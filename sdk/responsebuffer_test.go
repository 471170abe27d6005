package sdk_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
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
