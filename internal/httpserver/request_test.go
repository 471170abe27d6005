package httpserver

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// received is what a server has understood.
type received struct {
	Method, URL, RequestURI, Proto, Host string
	Header, Trailer                      http.Header
	Length                               int64
	TransferEncoding                     []string
	Close                                bool
	Body                                 string
	BodyFails                            bool
}

func receive(r *http.Request) *received {
	body, err := io.ReadAll(r.Body)
	return &received{r.Method, r.URL.String(), r.RequestURI, r.Proto, r.Host, r.Header, r.Trailer, r.ContentLength, r.TransferEncoding, r.Close, string(body), err != nil}
}

// FuzzRequest checks that what is taken for a request is what net/http's server takes for one, with the same meaning.
func FuzzRequest(f *testing.F) {
	for _, text := range requests {
		f.Add(text)
	}
	for _, text := range []string{
		"GET http://u@other/a HTTP/1.1\r\nHost: h\r\nA: b\r\na: c\r\n\r\n",
		"CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n",
		"CONNECT /a HTTP/1.1\r\n\r\n",
		"CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\nHost: i\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: h\r\n" + strings.Repeat("A:\r\n", mostLines) + "\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"GET / HTTP/1.0\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
		"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n0\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n",
		"GET / HTTP/1.1\nHost: h\n\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		own := understand(t, text, func(listener net.Listener, handler http.Handler) (closeServer func()) {
			s := &Server{Handler: handler, Ended: func() {}, MaxHead: 1 << 20, Context: t.Context(), ErrorLog: discarded}
			go func() { _ = s.Serve(listener) }()
			return func() { _ = s.Close() }
		})
		if own == nil {
			return // refused
		}
		standard := understand(t, text, func(listener net.Listener, handler http.Handler) (closeServer func()) {
			s := &http.Server{Handler: handler, ErrorLog: discarded, DisableGeneralOptionsHandler: true}
			go func() { _ = s.Serve(listener) }()
			return func() { _ = s.Close() }
		})
		if standard != nil && own.BodyFails && standard.BodyFails {
			own.Body, standard.Body, own.Trailer, standard.Trailer = "", "", nil, nil
		}
		if !reflect.DeepEqual(own, standard) {
			t.Errorf("%q is\n%+v, to net/http\n%+v", text, own, standard)
		}
	})
}

// understand returns what a server has understood of the first request, nil if it has refused it.
func understand(t *testing.T, text string, serve func(net.Listener, http.Handler) func()) *received {
	found := make(chan *received, 8)
	listener := listen(t)
	stop := serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case found <- receive(r):
		default:
		}
	}))
	defer stop()
	conn := dial(t, listener.Addr().String())
	defer conn.Close()
	go func() {
		_, _ = io.WriteString(conn, text)
		_ = conn.CloseWrite()
	}()
	_, _ = io.Copy(io.Discard, conn)
	select {
	case r := <-found:
		return r
	default:
		return nil
	}
}

// What is no request gets a status, and the connection is closed.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := start(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	const get = "GET / HTTP/1.1\r\nHost: h\r\n"
	for _, tc := range []struct {
		text   string
		status int
	}{
		{get + "\r\n", 200},
		{"GET /\r\n\r\n", 400},
		{"G T / HTTP/1.1\r\nHost: h\r\n\r\n", 505},
		{"G(T / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
		{"GET a HTTP/1.1\r\nHost: h\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\n\r\n", 400},
		{"GET / HTTP/1.0\r\nHost: h\r\n\r\n", 505},
		{"PRI * HTTP/2.0\r\n\r\n", 505},
		{get + "Host: i\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
		{get + "Content-Length: +1\r\n\r\n", 400},
		{get + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", 400},
		{get + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
		{get + "Transfer-Encoding: gzip\r\n\r\n", 501},
		{get + "Transfer-Encoding: chunked, chunked\r\n\r\n", 501},
		{get + "Transfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n", 400},
		{get + "a b: c\r\n\r\n", 400},
		{get + "a: b\r\n c\r\n\r\n", 400},
		{get + "a: b\x00\r\n\r\n", 400},
		{get + "no colon\r\n\r\n", 400},
		{get + "Expect: something\r\n\r\n", 417},
		{get + "Long: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", 431},
	} {
		conn := dial(t, s.path)
		go func() { _, _ = io.WriteString(conn, tc.text) }()
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Errorf("%.60q: %v", tc.text, err)
			continue
		}
		if resp.StatusCode != tc.status {
			t.Errorf("%.60q: %s, want %d", tc.text, resp.Status, tc.status)
		}
		if resp.Close != (tc.status != 200) {
			t.Errorf("%.60q: %s, close %v", tc.text, resp.Status, resp.Close)
		}
		_ = conn.Close()
	}
}
