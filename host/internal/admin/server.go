package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/catena-dev/catena/host/internal/guard"
)

// closeGrace is how long commands may take at the end of the host to get their responses.
const closeGrace = 2 * time.Second

var errStopping = errors.New("the server is stopping")

// Serve serves the admin socket of a host in its runtime directory, to the processes that admit returns no error for. Closing it ends the
// changes that are under way, and waits until the commands have read why.
func Serve(runtimeDir string, h Host, admit func(guard.Peer) error, errorLog *log.Logger) (closeSocket func() error, err error) {
	return serveSocket(runtimeDir, h, admit, errorLog, closeGrace)
}

func serveSocket(runtimeDir string, h Host, admit func(guard.Peer) error, errorLog *log.Logger, closeGrace time.Duration) (closeSocket func() error, err error) {
	l, err := guard.ListenFor(filepath.Join(runtimeDir, socketName), admit)
	if err != nil {
		return nil, fmt.Errorf("socket for commands: %w", err)
	}
	ctx, stop := context.WithCancelCause(context.Background())
	srv := &http.Server{
		Handler: handler(h), ErrorLog: errorLog,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: withCaller,
	}
	go func() { _ = srv.Serve(l) }()
	return func() error {
		stop(errStopping)
		grace, cancel := context.WithTimeout(context.Background(), closeGrace)
		defer cancel()
		_ = srv.Shutdown(grace)
		return srv.Close()
	}, nil
}

func handler(h Host) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { respond(w, h.Status(), nil, 0) })
	mux.HandleFunc("GET /source", func(w http.ResponseWriter, _ *http.Request) { respond(w, h.Source(), nil, 0) })
	mux.HandleFunc("POST /swap", func(w http.ResponseWriter, r *http.Request) {
		var req SwapRequest
		if !read(w, r, &req) {
			return
		}
		began := time.Now()
		result, err := h.Swap(r.Context(), req)
		h.Changed(changeBy(r, began, req.command(), err))
		respond(w, result, err, http.StatusConflict)
	})
	mux.HandleFunc("POST /swap/conclude", func(w http.ResponseWriter, r *http.Request) {
		var req ConcludeRequest
		if !read(w, r, &req) {
			return
		}
		began := time.Now()
		err := h.Conclude(r.Context(), req)
		h.Changed(changeBy(r, began, req.command(), err))
		respond(w, struct{}{}, err, http.StatusConflict)
	})
	mux.HandleFunc("POST /upgrade/plan", func(w http.ResponseWriter, r *http.Request) {
		var req PlanRequest
		if !read(w, r, &req) {
			return
		}
		result, err := h.PlanUpgrade(r.Context(), req)
		respond(w, result, err, http.StatusConflict)
	})
	mux.HandleFunc("POST /host/upgrade", func(w http.ResponseWriter, r *http.Request) {
		var req HostUpgradeRequest
		if !read(w, r, &req) {
			return
		}
		began := time.Now()
		err := h.UpgradeHost(r.Context(), req)
		if err != nil { // the other program records what it has done
			h.Changed(changeBy(r, began, strings.TrimSpace("upgrade "+req.Binary), err))
		}
		respond(w, struct{}{}, err, http.StatusConflict)
	})
	mux.HandleFunc("POST /shadow", func(w http.ResponseWriter, r *http.Request) {
		var req ShadowRequest
		if !read(w, r, &req) {
			return
		}
		began := time.Now()
		result, err := h.Shadow(r.Context(), req)
		h.Changed(changeBy(r, began, "shadow "+req.Stage+" --binary "+req.Binary, err))
		respond(w, result, err, http.StatusConflict)
	})
	mux.HandleFunc("GET /shadow", func(w http.ResponseWriter, _ *http.Request) {
		result, err := h.ShadowReport()
		respond(w, result, err, http.StatusNotFound)
	})
	mux.HandleFunc("DELETE /shadow", func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		result, err := h.StopShadow()
		h.Changed(changeBy(r, began, "shadow stop", err))
		respond(w, result, err, http.StatusConflict)
	})
	mux.HandleFunc("POST /reload", func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		result, err := h.Reload(r.Context())
		h.Changed(changeBy(r, began, "reload", err))
		respond(w, result, err, http.StatusConflict)
	})
	mux.HandleFunc("GET /explain", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		result, err := h.Explain(r.Context(), ExplainRequest{Method: q.Get("method"), Path: q.Get("path"),
			As: q.Get("as"), Groups: q["group"]})
		respond(w, result, err, http.StatusBadRequest)
	})
	handleDiagnostics(mux, h)
	return mux
}

// maxRequest bounds what a command asks for, in bytes.
const maxRequest = 1 << 20

// read reads a request, and reports whether it is one that a command may make. If not, it responds with the reason.
func read(w http.ResponseWriter, r *http.Request, req interface{ check() error }) bool {
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(req)
	if err == nil {
		err = req.check()
	}
	if err != nil {
		respond(w, nil, fmt.Errorf("%s %s: %w", r.Method, r.URL.Path, err), http.StatusBadRequest)
	}
	return err == nil
}

// respond writes the result as JSON or, if there is an error, that as text with the code.
func respond(w http.ResponseWriter, result any, err error, code int) {
	if errors.Is(err, ErrStarting) {
		code = http.StatusServiceUnavailable
	}
	if err != nil {
		http.Error(w, err.Error(), code)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(result)
}
