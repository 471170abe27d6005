package server

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/dashboard"
	"github.com/catena-dev/catena/host/internal/front"
)

// eventsPath is where the dashboard sends its updates.
const eventsPath = front.DashboardPath + dashboard.EventsPath

// handlePages makes the front serve the pages about the chain.
func (r *run) handlePages() {
	r.dashboard = dashboard.New((*pageSource)(r))
	r.front.HandleChain(http.HandlerFunc(r.serveChainPage))
	r.front.HandleStagePages(http.HandlerFunc(r.serveStagePage))
	r.front.HandleDashboard(http.StripPrefix(strings.TrimSuffix(front.DashboardPath, "/"), r.dashboard))
}

// chainPage is the page at front.ChainPath.
type chainPage struct {
	// Order has the names of the stages from head to tail.
	Order []string `json:"order"`
	admin.Status
}

// serveChainPage writes the chain as it is now.
func (r *run) serveChainPage(w http.ResponseWriter, _ *http.Request) {
	page := chainPage{Status: r.commands.Status()}
	for _, st := range page.Stages {
		page.Order = append(page.Order, st.Stage)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(page)
}

// pageSource is what the dashboard shows. No request comes before there are commands.
type pageSource run

func (s *pageSource) Status(context.Context) (admin.Status, error) { return s.commands.Status(), nil }

func (s *pageSource) Explain(ctx context.Context, r admin.ExplainRequest) (*admin.Explanation, error) {
	return s.commands.Explain(ctx, r)
}

func (s *pageSource) Changed() <-chan struct{} { return s.history.next() }
