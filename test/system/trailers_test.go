package system

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// lateTrailer sets the value of a trailer when the body has been read to its end, as a digest would be.
type lateTrailer struct {
	io.Reader
	trailer http.Header
}

func (l lateTrailer) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	if err == io.EOF {
		l.trailer.Set("X-Digest", "of the body")
	}
	return n, err
}

// Trailers of a request reach the stage that serves it, with their values: over HTTP/1.1 and HTTP/2, past stages that decline, and through
// stages that call.
func TestTrailersOfRequests(t *testing.T) {
	t.Parallel()
	l := theLong(t)
	letAsk(t, l)
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: protocol == "HTTP/2.0"}
		t.Cleanup(transport.CloseIdleConnections)
		for _, wrap := range []string{"none", "front", "front,middle"} {
			for _, size := range []int{5, 200 << 10} {
				name := fmt.Sprintf("%s, wrapped by %s, %d bytes", protocol, wrap, size)
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, l.URL+"/stage/behind", nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Trailer = http.Header{"X-Digest": nil, "X-Remote-User": {"forged"}}
				r.Body, r.ContentLength = io.NopCloser(lateTrailer{bytes.NewReader(make([]byte, size)), r.Trailer}), -1
				r.Header.Set("Authorization", "Bearer "+cluster.Admin+"-token")
				r.Header.Set(wrapHeader, wrap)
				resp, err := transport.RoundTrip(r)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				var got seen
				err = json.NewDecoder(resp.Body).Decode(&got)
				resp.Body.Close()
				if err != nil || resp.Proto != protocol || got.BodyBytes != int64(size) || got.Trailer.Get("X-Digest") != "of the body" || len(got.Trailer) != 1 {
					t.Errorf("%s: %s %v: %d bytes, trailers %v", name, resp.Proto, err, got.BodyBytes, got.Trailer)
				}
			}
		}
	}
}
