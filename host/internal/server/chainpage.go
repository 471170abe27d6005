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

// handlePages makes the front serve the pages about the chain, and returns the dashboard among them.
func handlePages(c *commands) *dashboard.Handler {
	d := dashboard.New(pageSource{c})
	c.front.HandleChain(http.HandlerFunc(c.serveChainPage))
	c.front.HandleStagePages(http.HandlerFunc(c.serveStagePage))
	c.front.HandleDashboard(http.StripPrefix(strings.TrimSuffix(front.DashboardPath, "/"), d))
	return d
}

// chainPage is the page at front.ChainPath.
type chainPage struct {
	// Order has the names of the stages from head to tail.
	Order []string `json:"order"`
	admin.Status
}

// serveChainPage writes the chain as it is now.
func (c *commands) serveChainPage(w http.ResponseWriter, _ *http.Request) {
	page := chainPage{Status: c.Status()}
	for _, st := range page.Stages {
		page.Order = append(page.Order, st.Stage)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(page)
}

// pageSource is what the dashboard shows.
type pageSource struct{ *commands }

func (s pageSource) Status(context.Context) (admin.Status, error) { return s.commands.Status(), nil }

func (s pageSource) Changed() <-chan struct{} { return s.journal.history.next() }
