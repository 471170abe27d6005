package sdk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/sdk/internal/httpserver"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// maxHeaderBytes is more than the host accepts from a client, since the host adds headers.
const maxHeaderBytes = 4 << 20

// envServer names the server of the data socket: "sdk", the default, or for one release "net/http".
const envServer = "CATENA_SDK_SERVER"

// standardServer reports whether the server of net/http is to take the place of the SDK's own. On systems other than Linux, that one does not notice
// when the host closes a connection.
func standardServer() (bool, error) {
	switch name := os.Getenv(envServer); name {
	case "", "sdk":
		return runtime.GOOS != "linux", nil
	case "net/http":
		return true, nil
	default:
		return false, fmt.Errorf("environment variable %s: %q is neither \"sdk\" nor \"net/http\"", envServer, name)
	}
}

// dataServer serves the data socket.
type dataServer interface {
	Serve(net.Listener) error
	Shutdown(context.Context) error
	Close() error
}

// serve begins to serve requests at the data socket. The server has no timeouts and
// closes no idle connection: the host decides about both.
func (s *Service) serve() dataServer {
	server := s.newServer()
	go func() {
		if err := server.Serve(s.data); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("data socket is no longer served", "error", err)
		}
	}()
	return server
}

func (s *Service) newServer() dataServer {
	errorLog := s.log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Warn})
	if !s.standardServer {
		return &httpserver.Server{Handler: http.HandlerFunc(s.serveHTTP), Ended: s.drain.leave, MaxHead: maxHeaderBytes, Context: s.ctx, ErrorLog: errorLog}
	}
	return &http.Server{
		// The end of the response is yet to be written then.
		Handler:                      http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { defer s.drain.leave(); s.serveHTTP(w, r) }),
		MaxHeaderBytes:               maxHeaderBytes,
		DisableGeneralOptionsHandler: true,
		BaseContext:                  func(net.Listener) context.Context { return s.ctx },
		ErrorLog:                     errorLog,
	}
}

func (s *Service) serveHTTP(w http.ResponseWriter, r *http.Request) {
	s.idle.Request()
	s.drain.enter() // until the server says that the response has been written
	resp, r := newResponse(w, r, s.drain)
	if client := r.Header.Get(stagev1.HeaderClient); client != "" {
		r.RemoteAddr, r.TLS = client, s.clientTLS
	}
	defer resp.release()
	defer s.recoverPanic(resp, r)
	s.handler.ServeHTTP(resp, r)
	resp.end()
	if resp.writtenAfterDecline {
		s.log.Error("handler has responded to a request that it had declined: the response is dropped", "method", r.Method, "path", r.URL.Path)
	}
}

// panicText is kube-apiserver's.
const panicText = "This request caused apiserver to panic. Look in the logs for details."

// recoverPanic responds in place of a handler that has panicked. A response that has
// begun is aborted, so that it does not look complete.
func (s *Service) recoverPanic(resp *response, r *http.Request) {
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
	case resp.hijacked != nil:
		_ = resp.hijacked.Close()
	case resp.began:
		panic(http.ErrAbortHandler)
	default:
		clear(resp.Header())
		http.Error(resp, panicText, http.StatusInternalServerError)
		resp.end()
	}
}
