package system

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// servingAddress finds where a host serves in its log.
var servingAddress = regexp.MustCompile(`serving: address=(\S+)`)

// readyz returns the status of /readyz, 0 if there is no response.
func readyz(client *http.Client, address string) int {
	resp, err := client.Get("https://" + strings.Trim(address, `"`) + "/readyz")
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// A server whose data directory is deleted is not ready any more, and ends with the one error that
// says so.
func TestDeletedDataDirectory(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	// The shutdown delay keeps the port open for as long as the test asks for readiness.
	h := s.start(t, s.args("--set", "apiserver.shutdown-delay-duration=3s")...)
	h.awaitReady(t)
	address := servingAddress.FindStringSubmatch(h.log())
	if address == nil {
		t.Fatal("no address in the log")
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(s.data, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	if code := readyz(client, address[1]); code != http.StatusOK {
		t.Fatalf("/readyz: %d", code)
	}
	if err := os.RemoveAll(s.data); err != nil {
		t.Fatal(err)
	}
	eventually(t, "/readyz fails", func() bool { return readyz(client, address[1]) != http.StatusOK })
	text := h.gone(t)
	want := "catena: store: data directory " + s.data + " was deleted or moved while it was in use"
	if !strings.Contains(text, want) {
		t.Errorf("the log lacks %q:\n%s", want, text)
	}
	if errors := regexp.MustCompile(`(?m)^.*\[(ERROR|WARN)\].*$`).FindAllString(text, -1); len(errors) > 3 { // while it is being deleted
		t.Errorf("%d more lines about it:\n%s", len(errors), strings.Join(errors, "\n"))
	}
	if h.ExitCode() != 1 {
		t.Errorf("exit code %d", h.ExitCode())
	}
}

// Commands find a host whose data directory is too deep for a socket in it.
func TestCommandsOfADeepDataDirectory(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.data = filepath.Join(s.data, strings.Repeat("d", max(1, 97-len(s.data)-1)))
	h := s.start(t, s.args()...)
	h.awaitReady(t)
	for _, command := range [][]string{{"status"}, {"swap", "hello"}, {"reload"}, {"explain", "GET", "/hello"}} {
		r := runCatena(t, append(command, s.args()[1:5]...)...)
		if r.code != 0 {
			t.Errorf("%v with a data directory of %d characters: exit code %d\n%s", command, len(s.data), r.code, r.stderr)
		}
	}
	h.stop(t)
}
