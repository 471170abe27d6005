package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// HostLog is the name of the host's own log, beside those of stages.
const HostLog = "host"

// Diagnostics is what a running host shows of itself to those who look for a fault.
type Diagnostics interface {
	// Logs calls send with the lines that are wanted, until ctx ends or send fails.
	Logs(ctx context.Context, r LogRequest, send func(LogChunk) error) error
	// LogLevels are the levels of the host and of each stage.
	LogLevels() []LogLevel
	// SetLogLevel is in force until the next reload, or restart of the host.
	SetLogLevel(ctx context.Context, l LogLevel) error
	// Metrics writes what /metrics shows.
	Metrics(w http.ResponseWriter, r *http.Request)
	// DebugPage writes a page about the host if stage is empty, and else about the process of that stage whose
	// generation the query names; the current one if it names none.
	DebugPage(w http.ResponseWriter, r *http.Request, stage, page string)
}

// LogRequest asks for lines of the log.
type LogRequest struct {
	// Names are of stages, and HostLog; all if empty.
	Names []string `json:"names,omitempty"`
	// Level is the least that a line has; any if empty.
	Level string `json:"level,omitempty"`
	// Since leaves out what is older, if it is set.
	Since time.Time `json:"since,omitzero"`
	// Tail is how many of the latest lines are wanted, -1 for all.
	Tail int `json:"tail"`
	// Follow goes on with the lines that come.
	Follow bool `json:"follow,omitempty"`
}

// LogChunk is a part of the log.
type LogChunk struct {
	Text string `json:"text,omitempty"`
	// Lost is how many lines before the text were overwritten before they could be sent.
	Lost uint64 `json:"lost,omitempty"`
}

// LogLevel is the level of a log.
type LogLevel struct {
	// Name is that of a stage, or HostLog.
	Name  string `json:"name"`
	Level string `json:"level"`
}

func handleDiagnostics(mux *http.ServeMux, h Diagnostics) {
	mux.HandleFunc("GET /logs", func(w http.ResponseWriter, r *http.Request) { serveLogs(w, r, h) })
	mux.HandleFunc("GET /logs/levels", func(w http.ResponseWriter, _ *http.Request) { respond(w, h.LogLevels(), nil, 0) })
	mux.HandleFunc("POST /logs/levels", func(w http.ResponseWriter, r *http.Request) {
		var l LogLevel
		if read(w, r, &l) {
			respond(w, struct{}{}, h.SetLogLevel(r.Context(), l), http.StatusBadRequest)
		}
	})
	mux.HandleFunc("GET /metrics", h.Metrics)
	mux.HandleFunc("GET /debug/host/{page...}", func(w http.ResponseWriter, r *http.Request) { h.DebugPage(w, r, "", r.PathValue("page")) })
	mux.HandleFunc("GET /debug/stages/{stage}/{page...}", func(w http.ResponseWriter, r *http.Request) {
		h.DebugPage(w, r, r.PathValue("stage"), r.PathValue("page"))
	})
}

// serveLogs sends one JSON value for each chunk. A client that does not read keeps only itself waiting.
func serveLogs(w http.ResponseWriter, r *http.Request, h Diagnostics) {
	q := r.URL.Query()
	req := LogRequest{Names: q["name"], Level: q.Get("level"), Follow: q.Has("follow")}
	var err error
	if req.Tail, err = strconv.Atoi(q.Get("tail")); err != nil {
		respond(w, nil, fmt.Errorf("tail: %w", err), http.StatusBadRequest)
		return
	}
	if since := q.Get("since"); since != "" {
		if req.Since, err = time.Parse(time.RFC3339Nano, since); err != nil {
			respond(w, nil, fmt.Errorf("since: %w", err), http.StatusBadRequest)
			return
		}
	}
	control := http.NewResponseController(w)
	interrupt := func() { _ = control.SetWriteDeadline(time.Now()) } // ends a write that is not read
	stop := context.AfterFunc(r.Context(), interrupt)
	defer func() {
		if stop() && r.Context().Err() != nil { // the end of the response is a write, too
			interrupt()
		}
	}()
	began := false
	err = h.Logs(r.Context(), req, func(c LogChunk) error {
		began = true
		return errors.Join(json.NewEncoder(w).Encode(c), control.Flush())
	})
	if err != nil && !began {
		respond(w, nil, err, http.StatusBadRequest)
	}
}

// Logs calls receive with the lines that are wanted.
func (c *Client) Logs(ctx context.Context, r LogRequest, receive func(LogChunk) error) error {
	q := url.Values{"name": r.Names, "level": {r.Level}, "tail": {strconv.Itoa(r.Tail)}}
	if !r.Since.IsZero() {
		q.Set("since", r.Since.Format(time.RFC3339Nano))
	}
	if r.Follow {
		q.Set("follow", "")
	}
	body, err := c.stream(ctx, "/logs?"+q.Encode())
	if err != nil {
		return err
	}
	defer body.Close()
	for dec := json.NewDecoder(body); ; {
		var chunk LogChunk
		err := dec.Decode(&chunk)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) && r.Follow { // the host has ended
			return nil
		}
		if err != nil {
			return err
		}
		if err := receive(chunk); err != nil {
			return err
		}
	}
}

// LogLevels returns the levels of the host and of each stage.
func (c *Client) LogLevels(ctx context.Context) ([]LogLevel, error) {
	var all []LogLevel
	err := c.call(ctx, http.MethodGet, "/logs/levels", nil, &all)
	return all, err
}

// SetLogLevel sets the level of the host or of a stage.
func (c *Client) SetLogLevel(ctx context.Context, l LogLevel) error {
	return c.call(ctx, http.MethodPost, "/logs/levels", l, &struct{}{})
}

// Metrics writes what /metrics shows.
func (c *Client) Metrics(ctx context.Context, w io.Writer) error { return c.copy(ctx, w, "/metrics") }

// DebugPage writes a page about the host if stage is empty, and else about a process of that stage.
func (c *Client) DebugPage(ctx context.Context, w io.Writer, stage, generation, page string, query url.Values) error {
	path := "/debug/host/" + page
	if stage != "" {
		path = "/debug/stages/" + url.PathEscape(stage) + "/" + page
		query.Set(GenerationParameter, generation)
	}
	return c.copy(ctx, w, path+"?"+query.Encode())
}

// GenerationParameter is the parameter of a query that names a process of a stage.
const GenerationParameter = "generation"

func (c *Client) copy(ctx context.Context, w io.Writer, path string) error {
	body, err := c.stream(ctx, path)
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(w, body)
	return err
}
