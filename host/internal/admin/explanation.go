package admin

import (
	"github.com/catena-dev/catena/host/internal/chain"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/sdk/claim"
)

// ExplainRequest asks what would happen to a request.
type ExplainRequest struct {
	Method string
	// Path may have a query.
	Path string
	// As is the user whose rights are looked up; empty if none are.
	As     string
	Groups []string
}

// Explanation is what would happen to a request.
type Explanation struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	// Running reports whether a running host has explained this. If not, it follows from
	// the configuration and the claims of the last run.
	Running bool `json:"running"`
	// Host reports whether the host itself responds, without a stage.
	Host   bool           `json:"host,omitempty"`
	Stages []ExplainStage `json:"stages"`
	// Incomplete is a stage that may have paths that it does not know yet.
	Incomplete string  `json:"incomplete,omitempty"`
	Access     *Access `json:"access,omitempty"`
}

// ExplainStage is a stage of an explanation.
type ExplainStage struct {
	Stage string `json:"stage"`
	// Order is the place in which the stage is asked, from 1; 0 if it is not.
	Order int `json:"order,omitempty"`
	// Claim is the one that covers the path, the longest if there are more.
	Claim string `json:"claim,omitempty"`
	State string `json:"state,omitempty"`
	// Outcomes are how often the requests to the stage have ended in which way since the
	// host started. Only a running host has counted them.
	Outcomes map[relay.Outcome]uint64 `json:"outcomes,omitempty"`
}

// Access is whether a user may make a request.
type Access struct {
	User   string   `json:"user"`
	Groups []string `json:"groups,omitempty"`
	// Request is what the authorizers see, in words.
	Request string `json:"request"`
	Allowed bool   `json:"allowed"`
	// Reason is the authorizer's, empty if it gives none.
	Reason string `json:"reason,omitempty"`
}

// Add appends the next stage of the chain and returns it.
func (e *Explanation) Add(st chain.StageClaims) *ExplainStage {
	added := ExplainStage{Stage: st.Name}
	var best claim.Claim
	for _, c := range st.Claims {
		if c.Covers(e.Path) && (added.Claim == "" || len(c.Path) > len(best.Path)) {
			best, added.Claim = c, c.String()
		}
	}
	if added.Claim != "" && !e.Host {
		added.Order = len(e.Asked()) + 1
	}
	e.Stages = append(e.Stages, added)
	return &e.Stages[len(e.Stages)-1]
}

// Asked returns the stages that are asked, in order.
func (e *Explanation) Asked() []string {
	var names []string
	for _, st := range e.Stages {
		if st.Order > 0 {
			names = append(names, st.Stage)
		}
	}
	return names
}
