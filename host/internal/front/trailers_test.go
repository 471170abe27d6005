package front_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/catena-dev/catena/host/internal/relay/h1"
)

// The values of the request's trailers are there once its body has been read, although the filters have handed on a copy of the request.
func TestTrailers(t *testing.T) {
	t.Parallel()
	s := start(t, open(t), func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, h1.Trailers(r))
	})
	conn, err := tls.Dial("tcp", s.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /api/v1/namespaces/a/things HTTP/1.1\r\nHost: x\r\nTrailer: X-Digest\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Digest: d\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "map[X-Digest:[d]]" {
		t.Errorf("%s %q, %v", resp.Status, text, err)
	}
}
