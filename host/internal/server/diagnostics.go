package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/logring"
	"github.com/catena-dev/catena/host/internal/suggest"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Logs sends what is left of the log, and then what comes.
func (c *commands) Logs(ctx context.Context, req admin.LogRequest, send func(admin.LogChunk) error) error {
	level := hclog.Trace
	if req.Level != "" {
		if level = hclog.LevelFromString(req.Level); level == hclog.NoLevel {
			return fmt.Errorf("there is no log level %q", req.Level)
		}
	}
	for _, name := range req.Names {
		if err := c.checkLogName(name); err != nil {
			return err
		}
	}
	wanted := func(l logring.Line) bool {
		return l.Level >= level && !l.At.Before(req.Since) && (len(req.Names) == 0 || slices.Contains(req.Names, l.Source))
	}
	reader := c.logs.recent.Reader()
	more, err := sendRecent(reader, wanted, req.Tail, send)
	for err == nil && req.Follow {
		select {
		case <-more:
		case <-ctx.Done():
			return nil
		}
		more, err = sendLines(reader, wanted, send)
	}
	return err
}

// sendRecent sends the latest lines of those that there are, and returns a channel that is closed when there are more.
func sendRecent(reader *logring.Reader, wanted func(logring.Line) bool, tail int, send func(admin.LogChunk) error) (<-chan struct{}, error) {
	if tail < 0 {
		return sendLines(reader, wanted, send)
	}
	var latest []logring.Line
	for {
		lines, _, more := reader.Next()
		if more != nil {
			return more, send(chunkOf(latest, 0))
		}
		latest = append(latest, slices.DeleteFunc(lines, func(l logring.Line) bool { return !wanted(l) })...)
		latest = latest[max(0, len(latest)-tail):]
	}
}

// sendLines sends all lines that were not read, and returns a channel that is closed when there are more.
func sendLines(reader *logring.Reader, wanted func(logring.Line) bool, send func(admin.LogChunk) error) (<-chan struct{}, error) {
	for {
		lines, lost, more := reader.Next()
		if more != nil {
			return more, nil
		}
		lines = slices.DeleteFunc(lines, func(l logring.Line) bool { return !wanted(l) })
		if len(lines) == 0 && lost == 0 {
			continue
		}
		if err := send(chunkOf(lines, lost)); err != nil {
			return nil, err
		}
	}
}

func chunkOf(lines []logring.Line, lost uint64) admin.LogChunk {
	var text strings.Builder
	for _, l := range lines {
		text.Write(l.Text)
	}
	return admin.LogChunk{Text: text.String(), Lost: lost}
}

// checkLogName returns an error if neither the host nor a stage of the chain has a name.
func (c *commands) checkLogName(name string) error {
	known := []string{admin.HostLog}
	for _, st := range c.stages.Specs() {
		known = append(known, st.Name)
	}
	if slices.Contains(known, name) {
		return nil
	}
	return fmt.Errorf("there is no log of %q%s: there are those of %s", name, suggest.DidYouMean(name, known), strings.Join(known, ", "))
}

// LogLevels are those of the host and of the stages of the chain.
func (c *commands) LogLevels() []admin.LogLevel {
	all := []admin.LogLevel{{Name: admin.HostLog, Level: c.logs.host.GetLevel().String()}}
	for _, st := range c.stages.Specs() {
		all = append(all, admin.LogLevel{Name: st.Name, Level: c.logs.stage(st.Name).GetLevel().String()})
	}
	return all
}

// SetLogLevel changes the level of the host, or of a stage and its processes.
func (c *commands) SetLogLevel(ctx context.Context, l admin.LogLevel) error {
	level := hclog.LevelFromString(l.Level)
	if level == hclog.NoLevel || level == hclog.Off {
		return fmt.Errorf("there is no log level %q: there are trace, debug, info, warn and error", l.Level)
	}
	if err := c.checkLogName(l.Name); err != nil {
		return err
	}
	c.logs.host.Info("log level changed until the next reload", "of", l.Name, "level", level.String())
	if l.Name == admin.HostLog {
		c.logs.host.SetLevel(level)
		return nil
	}
	c.logs.stage(l.Name).SetLevel(level)
	ctx, cancel := context.WithTimeout(ctx, logLevelTimeout)
	defer cancel()
	err := c.stages.SetLogLevel(ctx, l.Name, level.String())
	if status.Code(err) == codes.Unimplemented {
		return fmt.Errorf("the process of stage %q cannot change its level: the next one logs at %s", l.Name, level)
	}
	return err
}

// Metrics writes what /metrics shows.
func (c *commands) Metrics(w http.ResponseWriter, r *http.Request) { c.front.ServeMetrics(w, r) }

// DebugPage writes a profile of the host, or a page about a process of a stage.
func (c *commands) DebugPage(w http.ResponseWriter, r *http.Request, stage, page string) {
	if stage != "" {
		serveStagePage(w, r, c.stages, stage, page, func(code int, message string) { http.Error(w, message, code) })
		return
	}
	switch profile, ok := strings.CutPrefix(page, "pprof/"); {
	case !ok:
		http.NotFound(w, r)
	case profile == "profile":
		pprof.Profile(w, r)
	default:
		pprof.Handler(profile).ServeHTTP(w, r)
	}
}

// serveStagePage serves what is below front.StagePagesPath.
func (c *commands) serveStagePage(w http.ResponseWriter, req *http.Request) {
	stage, page, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, front.StagePagesPath), "/")
	fail := func(code int, message string) { c.front.PageError(w, req, code, message) }
	if req.Method != http.MethodGet {
		fail(http.StatusMethodNotAllowed, "pages about a stage can only be read")
		return
	}
	serveStagePage(w, req, c.stages, stage, page, fail)
}

// serveStagePage writes a page of the process that the query names, or of the current one. It calls fail without one.
func serveStagePage(w http.ResponseWriter, r *http.Request, stages *supervisor.Supervisor, stage, page string, fail func(code int, message string)) {
	query := r.URL.Query()
	generation := query.Get(admin.GenerationParameter)
	query.Del(admin.GenerationParameter)
	began := false
	err := stages.DebugPage(r.Context(), stage, generation,
		&stagev1.GetDebugPageRequest{Page: page, Query: query.Encode(), Accept: r.Header.Get("Accept")},
		func(piece *stagev1.GetDebugPageResponse) error {
			if !began {
				began = true
				w.Header().Set("Content-Type", piece.GetContentType())
				if code := int(piece.GetCode()); code >= http.StatusOK && code < 600 {
					w.WriteHeader(code)
				}
			}
			_, err := w.Write(piece.GetBody())
			return err
		})
	switch {
	case err == nil:
	case began:
		panic(http.ErrAbortHandler) // so that it does not look complete
	default:
		fail(pageCode(err), pageProblem(err, stage, page))
	}
}

func pageCode(err error) int {
	switch {
	case errors.Is(err, supervisor.ErrNoProcess):
		return http.StatusServiceUnavailable
	case status.Code(err) == codes.Unimplemented:
		return http.StatusNotImplemented
	case status.Code(err) == codes.NotFound, errors.Is(err, supervisor.ErrNotInChain):
		return http.StatusNotFound
	}
	return http.StatusInternalServerError
}

func pageProblem(err error, stage, page string) string {
	switch status.Code(err) {
	case codes.Unimplemented:
		return fmt.Sprintf("stage %q has no profiles and no other pages: its SDK does not have them, or is older than they are", stage)
	case codes.NotFound:
		return fmt.Sprintf("stage %q has no page %q", stage, page)
	}
	return err.Error()
}
