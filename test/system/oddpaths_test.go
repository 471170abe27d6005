package system

import (
	"net/http"
	"path"
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/test/internal/cluster"
)

// newTidy is a stage that cleans paths, as some libraries do.
func newTidy(env *sdk.Env) (http.Handler, error) {
	env.ClaimPrefix("/tidy")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("tidy has " + path.Clean(strings.ReplaceAll(r.URL.Path, `\`, "/"))))
	}), nil
}

// A stage that cleans paths gets none that is another one afterwards: the user was authorized for the
// path as it came.
func TestPathsThatSomeClean(t *testing.T) {
	t.Parallel()
	c := smallCatena(t, `apiVersion: catena.dev/v1alpha1
kind: HostConfiguration
stages:
  tidy: {lock: off}
`, nil, "tidy")
	get := func(target string) response {
		conn := dial(t, c.Server)
		conn.send("GET " + target + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer bob-token\r\n\r\n")
		return conn.whole(http.MethodGet)
	}
	for _, target := range []string{"/tidy", "/tidy/", "/tidy/public/a", "/tidy/.well-known", "/tidy/a..b", "/tidy/a;b"} {
		if a := get(target); a.code != http.StatusOK {
			t.Errorf("%s: %d %s", target, a.code, a.body)
		}
	}
	for _, target := range []string{
		"/tidy/public/../private", "/tidy/public/%2e%2e/private", "/tidy/public/.%2E/private", "/tidy/public/..%2fprivate",
		"/tidy/public%2f..%2fprivate", "/tidy/public/..;x=y/private", "/tidy/public/..;/private", "/tidy/./private", "/tidy//private",
		"//tidy/private", "/tidy/public/..", "/tidy/public%5c..%5cprivate", `/tidy/public\..\private`, "/public/../tidy/private",
	} {
		if a := get(target); a.code != http.StatusNotFound && a.code != http.StatusBadRequest || strings.Contains(a.body, "tidy has") {
			t.Errorf("%s: %d %s", target, a.code, a.body)
		}
	}
	if a := do(t, c.Config(cluster.Bob), http.MethodGet, "/tidy/public/../private", ""); a.code != http.StatusNotFound {
		t.Errorf("over HTTP/2: %d %s", a.code, a.body)
	}
}
