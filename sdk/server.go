package sdk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"

	"github.com/hashicorp/go-hclog"
)

// maxHeaderBytes is above what the host takes from a client, since the host adds to it.
const maxHeaderBytes = 4 << 20

// serve begins to serve requests at the data socket. The server has no timeouts and
// closes no idle connection: the host decides about both.
func (s *Service) serve() *http.Server {
	server := &http.Server{
		Handler:                      http.HandlerFunc(s.serveHTTP),
		MaxHeaderBytes:               maxHeaderBytes,
		DisableGeneralOptionsHandler: true,
		BaseContext:                  func(net.Listener) context.Context { return s.ctx },
		ErrorLog:                     s.log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Warn}),
	}
	go func() {
		if err := server.Serve(s.data); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("data socket is not served any more", "error", err)
		}
	}()
	return server
}

func (s *Service) serveHTTP(w http.ResponseWriter, r *http.Request) {
	s.drain.enter()
	defer s.drain.leave()
	x, r := newExchange(w, r, s.drain)
	defer x.release()
	defer s.recoverPanic(x, r)
	s.handler.ServeHTTP(x, r)
	x.end()
	if x.afterwards {
		s.log.Error("handler has answered a request that it had declined: nobody gets that answer", "method", r.Method, "path", r.URL.Path)
	}
}

// panicText is kube-apiserver's.
const panicText = "This request caused apiserver to panic. Look in the logs for details."

// recoverPanic answers in the place of a handler that has panicked. If the answer has
// begun, it is broken off, so that it does not look complete.
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
	case x.answered:
		panic(http.ErrAbortHandler)
	default:
		clear(x.Header())
		http.Error(x, panicText, http.StatusInternalServerError)
	}
}
