package system

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/test/internal/cluster"
)

// newStray makes a stage that takes bodies for requests, though the SDK says that it does not.
func newStray(env *sdk.Env) (http.Handler, error) {
	env.ClaimPrefix("/stray")
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		for err == nil {
			fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			_, err = http.ReadRequest(rw.Reader)
		}
	}), nil
}

// The log and the metrics name a stage that sends more than a response to a request.
func TestStrayBytes(t *testing.T) {
	t.Parallel()
	c := catena(t, cluster.Options{
		PluginDirs: []string{plugins(t, "stray")},
		Set:        []string{"stages.stray.delegate=aggregator", "stages.stray.lock=off"},
	})
	client, err := rest.HTTPClientFor(c.Config(cluster.Admin))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the log names the stage", func() bool {
		body := "GET /stray HTTP/1.1\r\nHost: h\r\n\r\n"
		resp, err := client.Post(c.URL+"/stray", "text/plain", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return strings.Contains(string(read(c.Process().Log)), "a stage sends more than a response")
	})
	metrics := kubectl(t, c.Server, "get", "--raw", "/metrics")
	if !strings.Contains(metrics, `catena_stage_limit_reached_total{limit="strayBytes",stage="stray"}`) {
		t.Error("no count of stray bytes")
	}
}
