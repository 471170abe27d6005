package h1

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"testing"

	"github.com/catena-dev/catena/internal/http1"
)

func TestParseResponse(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, head string
		want       string // of the error; "" if the head is right
	}{
		{"plain", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", ""},
		{"no reason", "HTTP/1.1 200\r\n\r\n", ""},
		{"empty reason", "HTTP/1.1 200 \r\n\r\n", ""},
		{"same length twice", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n", ""},
		{"chunked in capitals", "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n", ""},
		{"value beyond ASCII", "HTTP/1.1 200 OK\r\nA: \xff\r\n\r\n", ""},

		{"empty", "\r\n\r\n", "not HTTP/1"},
		{"HTTP/2", "HTTP/2.0 200 OK\r\n\r\n", "not HTTP/1"},
		{"lower case", "http/1.1 200 OK\r\n\r\n", "not HTTP/1"},
		{"a request", "GET / HTTP/1.1\r\n\r\n", "not HTTP/1"},
		{"no status", "HTTP/1.1\r\n\r\n", "invalid status line"},
		{"status of two digits", "HTTP/1.1 20 OK\r\n\r\n", "invalid status line"},
		{"status below 100", "HTTP/1.1 099 OK\r\n\r\n", "invalid status line"},
		{"signed status", "HTTP/1.1 +20 OK\r\n\r\n", "invalid status line"},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", "two lengths"},
		{"list of lengths", "HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\n\r\n", "invalid length"},
		{"negative length", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "invalid length"},
		{"signed length", "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n", "invalid length"},
		{"hexadecimal length", "HTTP/1.1 200 OK\r\nContent-Length: 0x1\r\n\r\n", "invalid length"},
		{"length beyond 63 bits", "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775808\r\n\r\n", "invalid length"},
		{"empty length", "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n", "invalid length"},
		{"length and chunks", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "both"},
		{"chunked twice", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "unknown transfer encoding"},
		{"gzip", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "unknown transfer encoding"},
		{"chunks in HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.0"},
		{"chunks without a body", "HTTP/1.1 204 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "status 204"},
		{"folded line", "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", "invalid header line"},
		{"space before the colon", "HTTP/1.1 200 OK\r\nA : b\r\n\r\n", "invalid header line"},
		{"no colon", "HTTP/1.1 200 OK\r\nA\r\n\r\n", "invalid header line"},
		{"empty name", "HTTP/1.1 200 OK\r\n: b\r\n\r\n", "invalid header line"},
		{"bare line feed", "HTTP/1.1 200 OK\r\nA: b\nC: d\r\n\r\n", "invalid byte"},
		{"bare carriage return", "HTTP/1.1 200 OK\r\nA: b\rC: d\r\n\r\n", "invalid byte"},
		{"NUL", "HTTP/1.1 200 OK\r\nA: \x00\r\n\r\n", "invalid byte"},
	} {
		var resp Response
		err := resp.parse(tc.head)
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", tc.name, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: error %v, want one with %q", tc.name, err, tc.want)
		}
	}
}

// FuzzResponse checks the parser against net/http's: what ours takes, net/http takes
// too, and understands in the same way.
func FuzzResponse(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-A: b\r\nx-a:c\r\n\r\n",
		"HTTP/1.0 404 Not Found\r\nConnection: Keep-Alive, close\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n",
		"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
		"HTTP/1.1 304 \r\nContent-Length: 7\r\n\r\n",
		"HTTP/1.1 200 OK\r\nA: b\n\r\n\r\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, head string) {
		var resp Response
		if resp.parse(head) != nil {
			return
		}
		// A GET's response may have a body; what it is does not matter.
		std, err := http.ReadResponse(bufio.NewReader(strings.NewReader(head)), &http.Request{Method: "GET"})
		if err != nil {
			t.Fatalf("we take %q, net/http: %v", head, err)
		}
		if std.StatusCode != resp.Status {
			t.Errorf("status %d, net/http %d", resp.Status, std.StatusCode)
		}
		if chunked := std.TransferEncoding != nil; chunked != resp.Chunked {
			t.Errorf("chunked %v, net/http %v", resp.Chunked, chunked)
		}
		if http1.BodyAllowed(resp.Status) && !resp.Chunked && std.ContentLength != resp.Length {
			t.Errorf("length %d, net/http %d", resp.Length, std.ContentLength)
		}
		if !resp.last && resp.Status >= 200 && (resp.Chunked || resp.Length >= 0) && std.Close {
			t.Errorf("we keep the connection, net/http does not: %q", head)
		}
		h := http.Header{}
		for _, f := range resp.Fields {
			h.Add(f.Key, f.Value)
		}
		for key, want := range std.Header {
			if got := h[key]; !slices.Equal(got, want) && key != "Content-Length" {
				t.Errorf("%s: %q, net/http %q", key, got, want)
			}
		}
	})
}

// FuzzChunks checks the chunked decoding against net/http's: what ours takes to its
// end, net/http takes too, and gets the same from it.
func FuzzChunks(f *testing.F) {
	for _, seed := range []string{
		"3\r\nabc\r\n0\r\n\r\n", "A\r\n0123456789\r\n0\r\nX: y\r\n\r\n", "3;ext=1\r\nabc\r\n0\r\n\r\n",
		"3 \r\nabc\r\n00\r\n\r\n", "-1\r\n\r\n", "fffffffffffffffff\r\n", "0\r\n", "3\r\nabcd\r\n0\r\n\r\n",
	} {
		f.Add([]byte(seed), 1)
	}
	f.Fuzz(func(t *testing.T, body []byte, split int) {
		got, err := decodeChunks(t, body, split)
		if err != nil {
			return
		}
		want, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(body)))
		if err != nil {
			t.Fatalf("we take %q, net/http: %v", body, err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("got %q, net/http %q", got, want)
		}
	})
}

// decodeChunks sends a chunked body through a connection, in two parts, and returns
// what a client gets.
func decodeChunks(t *testing.T, body []byte, split int) ([]byte, error) {
	near, far := connPair(t)
	defer near.Close()
	go func() {
		defer far.Close()
		split = min(max(split, 0), len(body))
		far.Write(body[:split])
		far.Write(body[split:])
	}()
	var got sink
	err := near.CopyBody(t.Context(), &got, &Response{Status: http.StatusOK, Chunked: true, Length: -1})
	return got.Bytes(), err
}

// sink keeps a body.
type sink struct{ bytes.Buffer }

func (*sink) Flush()        {}
func (*sink) Trailer(Field) {}
