package sdk

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/internal/httpserver"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// maxHeaderBytes is more than the host accepts from a client, since the host adds headers.
const maxHeaderBytes = 4 << 20

// serve begins to serve requests at the data socket. The server has no timeouts and
// closes no idle connection: the host decides about both.
func (s *Service) serve() *httpserver.Server {
	errorLog := s.log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Warn})
	server := &httpserver.Server{
		Handler: http.HandlerFunc(s.serveHTTP), Ended: s.drain.leave, MaxHead: maxHeaderBytes,
		Context: s.ctx, ErrorLog: errorLog,
	}
	go func() {
		if err := server.Serve(s.data); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("data socket is no longer served", "error", err)
		}
	}()
	return server
}

func (s *Service) serveHTTP(w http.ResponseWriter, r *http.Request) {
	s.drain.enter() // until the server reports that the response has been written
	resp := w.(*httpserver.Response)
	x, r := newExchange(resp, r, s.drain)
	if client := r.Header.Get(stagev1.HeaderClient); client != "" {
		r.RemoteAddr, r.TLS = client, s.clientTLS
	}
	defer x.release()
	defer s.recoverPanic(x, r)
	s.handler.ServeHTTP(w, r)
	resp.Conclude()
	if r.MultipartForm != nil {
		_ = r.MultipartForm.RemoveAll() // as net/http does
	}
	if _, late := resp.Declined(); late {
		s.log.Error("handler has responded to a request that it had declined: the response is dropped", "method",
			r.Method, "path", r.URL.Path)
	}
}

// panicText is kube-apiserver's.
const panicText = "This request caused apiserver to panic. Look in the logs for details."

// recoverPanic responds in place of a handler that has panicked. A response that has
// begun is aborted, so that it does not look complete.
func (s *Service) recoverPanic(x *exchange, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p)
	}
	s.log.Error("panic", "in", "handler", "method", r.Method, "path", r.URL.Path,
		"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	switch {
	case x.hijacked != nil:
		_ = x.hijacked.Close()
	case x.writer.Begun():
		panic(http.ErrAbortHandler)
	default:
		clear(x.writer.Header())
		http.Error(x.writer, panicText, http.StatusInternalServerError)
		x.writer.Conclude()
	}
}
