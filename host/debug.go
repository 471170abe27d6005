package main

import (
	"net/http"
)

// chainPage is what the server shows at front.ChainPath.
type chainPage struct {
	// Order has the names of the stages from head to tail.
	Order []string `json:"order"`
	hostStatus
	// Claims are those of each stage, as "catena chain" prints them.
	Claims map[string][]string `json:"claims"`
}

// serveChain answers with the chain as it is now.
func (s *server) serveChain(w http.ResponseWriter, _ *http.Request) {
	page := chainPage{hostStatus: s.status(), Claims: map[string][]string{}}
	for _, st := range page.Stages {
		page.Order = append(page.Order, st.Stage)
	}
	if published := s.published.Load(); published != nil {
		for _, st := range *published {
			page.Claims[st.Name] = claimTexts(claimsOf(st.Claims))
		}
	}
	writeJSON(w, page)
}
