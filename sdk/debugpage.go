package sdk

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// DebugPage makes a handler serve a page about this process to operators, below
// /debug/catena/stages/NAME/ of the host: statusz or flagz, as Kubernetes' components have them. The
// handler gets the path /PAGE. Profiles of Go's runtime are there for every stage, and so is a statusz.
func (e *Env) DebugPage(page string, h http.Handler) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pages == nil {
		e.pages = map[string]http.Handler{}
	}
	e.pages[page] = h
}

func (e *Env) debugPage(page string) http.Handler {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pages[page]
}

// GetDebugPage streams a page about the process. Profiles need no lock of the stage: they are for one that
// hangs, too.
func (s *Service) GetDebugPage(req *stagev1.GetDebugPageRequest, stream stagev1.Stage_GetDebugPageServer) error {
	w := &pageWriter{stream: stream, header: http.Header{}}
	query, err := url.ParseQuery(req.GetQuery())
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if profile, ok := strings.CutPrefix(req.GetPage(), "pprof/"); ok {
		return writeProfile(stream.Context(), w, profile, query)
	}
	env, err := s.configured()
	if err != nil {
		return err
	}
	h := env.debugPage(req.GetPage())
	if h == nil && req.GetPage() == "statusz" {
		h = statusz{s.stage, s.started}
	}
	if h == nil {
		return status.Errorf(codes.NotFound, "the stage has no page %q", req.GetPage())
	}
	r, err := http.NewRequestWithContext(stream.Context(), http.MethodGet, "/"+req.GetPage()+"?"+req.GetQuery(), nil)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	r.Header.Set("Accept", req.GetAccept())
	return guard(s.log, "page "+req.GetPage(), func() error {
		h.ServeHTTP(w, r)
		return w.err
	})
}

// pageWriter sends a page as messages.
type pageWriter struct {
	stream stagev1.Stage_GetDebugPageServer
	header http.Header
	code   int
	began  bool
	err    error
}

func (w *pageWriter) Header() http.Header  { return w.header }
func (w *pageWriter) WriteHeader(code int) { w.code = code }

// pagePiece is the size of the largest piece of a page.
const pagePiece = 256 << 10

func (w *pageWriter) Write(p []byte) (int, error) {
	for rest := p; w.err == nil && len(rest) > 0; {
		m := &stagev1.GetDebugPageResponse{Body: rest[:min(len(rest), pagePiece)]}
		rest = rest[len(m.GetBody()):]
		if !w.began {
			w.began, m.Code, m.ContentType = true, int32(w.code), w.header.Get("Content-Type")
		}
		w.err = w.stream.Send(m)
	}
	return len(p), w.err
}

// writeProfile writes what net/http/pprof has under a name. That package is not used, since it adds
// itself to http.DefaultServeMux, which may be a stage's handler.
func writeProfile(ctx context.Context, w *pageWriter, name string, query url.Values) error {
	w.header.Set("Content-Type", "application/octet-stream")
	switch name {
	case "profile":
		return recordProfile(ctx, w, pprof.StartCPUProfile, pprof.StopCPUProfile, secondsOf(query, 30*time.Second))
	case "trace":
		return recordProfile(ctx, w, trace.Start, trace.Stop, secondsOf(query, time.Second))
	}
	p := pprof.Lookup(name)
	if p == nil {
		return status.Errorf(codes.NotFound, "there is no profile %q", name)
	}
	if name == "heap" && query.Get("gc") == "1" {
		runtime.GC()
	}
	debug, _ := strconv.Atoi(query.Get("debug"))
	if debug != 0 {
		w.header.Set("Content-Type", "text/plain; charset=utf-8")
	}
	return p.WriteTo(w, debug)
}

// secondsOf returns how long a profile is to be recorded.
func secondsOf(query url.Values, unset time.Duration) time.Duration {
	seconds, err := strconv.ParseFloat(query.Get("seconds"), 64)
	if err != nil || seconds <= 0 {
		return unset
	}
	return time.Duration(seconds * float64(time.Second))
}

// recordProfile writes what the runtime records in a time.
func recordProfile(ctx context.Context, w io.Writer, start func(io.Writer) error, stop func(), d time.Duration) error {
	// The runtime does not say that a write has failed, and a trace is written while it is recorded.
	var recorded bytes.Buffer
	if err := start(&recorded); err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	stop()
	_, err := recorded.WriteTo(w)
	return err
}

// SetLogLevel changes the level of the stage's logger.
func (s *Service) SetLogLevel(_ context.Context, req *stagev1.SetLogLevelRequest) (*stagev1.SetLogLevelResponse, error) {
	level := hclog.LevelFromString(req.GetLevel())
	if level == hclog.NoLevel || level == hclog.Off {
		return nil, status.Errorf(codes.InvalidArgument, "there is no log level %q", req.GetLevel())
	}
	s.log.SetLevel(level)
	return &stagev1.SetLogLevelResponse{}, nil
}
