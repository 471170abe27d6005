package server

import (
	"encoding/json"
	"net/http"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/sdk/claim"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// chainPage is the page at front.ChainPath.
type chainPage struct {
	// Order has the names of the stages from head to tail.
	Order []string `json:"order"`
	admin.Status
	// Claims are those of each stage, as "catena chain" prints them.
	Claims map[string][]string `json:"claims"`
}

// serveChainPage writes the chain as it is now.
func (r *run) serveChainPage(w http.ResponseWriter, _ *http.Request) {
	page := chainPage{Status: r.commands.Status(), Claims: map[string][]string{}}
	for _, st := range page.Stages {
		page.Order = append(page.Order, st.Stage)
	}
	for _, st := range r.chain.stages() {
		page.Claims[st.Name] = claim.Texts(stagev1.DecodeClaims(st.Claims))
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(page)
}
