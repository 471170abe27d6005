package admin

import (
	"fmt"
	"strings"

	"github.com/catena-dev/catena/host/internal/chain"
	"github.com/catena-dev/catena/host/internal/lifecycle"
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

// Sentences say what responds, and whether the user is authorized.
func (e *Explanation) Sentences() []string {
	var all []string
	switch names := e.Asked(); {
	case e.Host:
		all = append(all, "The host itself responds.")
	case len(names) == 0:
		all = append(all, "No stage claims the path: "+e.ending()+".")
	default:
		all = append(all, strings.Join(names, " responds, or passes it on; then ")+" responds, or passes it on; then "+e.ending()+".")
	}
	for _, a := range e.Stages {
		if a.Order > 0 && e.Running && a.State != lifecycle.Serving.String() {
			all = append(all, fmt.Sprintf("Stage %s is %s: requests that come to it wait, or get 503.", a.Stage, a.State))
		}
	}
	if !e.Running {
		all = append(all, "No host runs on this data directory: these are the claims of the last run.")
	}
	if a := e.Access; a != nil {
		verdict := "may not"
		if a.Allowed {
			verdict = "may"
		}
		line := fmt.Sprintf("%s (in %s) %s %s", a.User, strings.Join(a.Groups, ", "), verdict, a.Request)
		if a.Reason != "" {
			line += ": " + a.Reason
		}
		all = append(all, line)
	}
	return all
}

// ending is what comes behind the last stage.
func (e *Explanation) ending() string {
	if e.Incomplete != "" {
		return fmt.Sprintf("503, since stage %s does not know all of its paths yet", e.Incomplete)
	}
	return "404"
}
