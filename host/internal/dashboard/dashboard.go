// Package dashboard is the page on which operators see how the chain stands. It shows what "catena status -o json" prints,
// rendered on the server: without scripts it is complete, with them it follows the chain.
package dashboard

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"html/template"
	"net/http"
	"strconv"
	"time"

	"github.com/catena-dev/catena/host/internal/admin"
)

//go:embed page.html live.html page.css page.js icon.svg
var files embed.FS

// EventsPath is where the page gets its updates, below that of the page.
const EventsPath = "events"

// policy lets the page load what the host serves beside it, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Source is the host that a page shows. Its methods may be called concurrently.
type Source interface {
	Status(ctx context.Context) (admin.Status, error)
	Explain(ctx context.Context, r admin.ExplainRequest) (*admin.Explanation, error)
	// Changed returns a channel that is closed when something has happened to the chain. It may be nil: the page looks by itself
	// once a second.
	Changed() <-chan struct{}
}

// Handler serves the page at the path "" and what it consists of below. The prefix of the page has to be stripped.
type Handler struct {
	source Source
	pages  *template.Template
	feed   *feed
	mux    http.ServeMux
}

// New returns the page of a host.
func New(source Source) *Handler {
	h := &Handler{source: source, pages: template.Must(template.ParseFS(files, "page.html", "live.html"))}
	h.feed = newFeed(source, h.renderLive)
	h.mux.HandleFunc("GET /{$}", h.servePage)
	h.mux.HandleFunc("GET /"+EventsPath, h.feed.serve)
	h.mux.HandleFunc("GET /status", h.serveStatus)
	for _, name := range []string{"page.css", "page.js", "icon.svg"} {
		h.mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, files, name) })
	}
	return h
}

// Close ends the streams of updates, and lets no other begin. It is to be called once.
func (h *Handler) Close() { close(h.feed.closed) }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	h.mux.ServeHTTP(w, r)
}

// serveStatus writes what "catena status -o json" prints.
func (h *Handler) serveStatus(w http.ResponseWriter, r *http.Request) {
	status, err := h.source.Status(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(status)
}

// page is all that the page shows.
type page struct {
	*live
	// Find selects claims.
	Find string
	// Method and Path are the request to explain; Sentences explain it, and Problem is why nothing does.
	Method, Path string
	Methods      []string
	Explanation  *admin.Explanation
	Problem      string
}

// servePage writes the whole page. The query has what was typed into its forms.
func (h *Handler) servePage(w http.ResponseWriter, r *http.Request) {
	status, err := h.source.Status(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	query := r.URL.Query()
	p := page{
		live: newLive(status, query.Get("find")), Find: query.Get("find"),
		Method: query.Get("method"), Path: query.Get("path"),
		Methods: []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete},
	}
	if p.Path != "" {
		if p.Explanation, err = h.source.Explain(r.Context(), admin.ExplainRequest{Method: p.Method, Path: p.Path}); err != nil {
			p.Problem = err.Error()
		}
	}
	var out bytes.Buffer
	if err := h.pages.ExecuteTemplate(&out, "page.html", p); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(out.Len()))
	_, _ = out.WriteTo(w)
}

// renderLive renders the part of the page that changes with the chain.
func (h *Handler) renderLive(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	status, err := h.source.Status(ctx)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = h.pages.ExecuteTemplate(&out, "live", newLive(status, ""))
	return out.Bytes(), err
}
