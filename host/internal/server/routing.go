package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/canary"
	"github.com/catena-dev/catena/host/internal/fairness"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/host/internal/traffic"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// routing is what the relay asks the front and the supervisor for.
type routing struct {
	front   *front.Frontend
	stages  *supervisor.Supervisor
	traffic *traffic.Meter
	log     hclog.Logger
	limits  *limits
	level   *fairness.Level
	// followers are the stages that follow what the server serves.
	followers []string
}

// notFound is the end of the chain. While a stage that has been restarted is finding out
// what it serves, no path is known not to be served.
func (r *routing) notFound(w http.ResponseWriter, req *http.Request) {
	if stage := r.stages.Incomplete(); stage != "" {
		r.stageError(w, req, &relay.StageError{Kind: relay.Unavailable, Stage: stage, Err: relay.ErrIncomplete})
		return
	}
	r.front.NotFound().ServeHTTP(w, req)
}

// stageError responds to a request that got no response from its stage. Why a stage is
// down is for operators, as the whole error is.
func (r *routing) stageError(w http.ResponseWriter, req *http.Request, e *relay.StageError) {
	if own, ok := w.(interface{ Failed(error) }); ok {
		own.Failed(e)
		return
	}
	explained := *e
	if e.Kind == relay.Unavailable {
		if failure := r.stages.Failure(e.Stage); failure != "" {
			explained.Err = fmt.Errorf("%w; latest failure: %s", e.Err, failure)
		}
	}
	r.front.StageError(w, req, &explained)
}

// observe counts the requests of the stages.
func (r *routing) observe(h relay.Hop) {
	r.front.Metrics().ObserveHop(h.Stage, h.Outcome)
	if h.Resume.Result != "" {
		r.observeResume(h)
	}
	r.traffic.Observe(h)
	if h.Request == nil {
		r.stages.Observe(h.Socket, h.Failed())
		return
	}
	late := errors.Is(h.Request.Context().Err(), context.DeadlineExceeded)
	if front.IsSystemRequest(h.Request) || h.Outcome == relay.GivenUp && !late {
		return // it says nothing of how the stage does for clients
	}
	switch h.Outcome {
	case relay.Declined, relay.Replayed, relay.Resumed:
		return
	}
	kind, streams := r.front.CanaryKind(h.Request)
	o := canary.Outcome{Failed: h.Failed() || h.Outcome == relay.GivenUp, Refused: refused(h)}
	if !streams && h.Outcome != relay.Upgraded {
		o.Took = h.Took
	}
	r.stages.Compare(h.Socket, kind, o)
}

// observeResume counts what became of a watch that has left its process.
func (r *routing) observeResume(h relay.Hop) {
	r.front.Metrics().ObserveResume(h.Stage, h.Resume)
	if h.Resume.Difference != "" && r.limits.due.Due(h.Stage+" watches") {
		r.log.Error("a watch has ended: the next process does not have the events of the one before", "stage", h.Stage,
			"difference", h.Resume.Difference)
	}
}

// refused reports whether a stage has not accepted a write as it is. Who may write has been decided before.
func refused(h relay.Hop) bool {
	switch h.Status {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusUnprocessableEntity:
		return h.Request.Method != http.MethodGet && h.Request.Method != http.MethodHead
	}
	return false
}

// caller is the process of a stage to which a token belongs. Only the stage, and what its processes have started, may
// use it, and on its own socket only.
func (r *routing) caller(req *http.Request, token string) (relay.Caller, bool) {
	id, ok := r.stages.Authenticate(token)
	if from := callFrom(req.Context()); ok && (from.stage != id.Stage || !from.own()) {
		const tried = "be another process, with its token"
		if r.limits.due.Due(id.Stage + " " + tried) {
			r.log.Warn("a request with the token of a stage is refused: it comes from another process", "stage",
				id.Stage, "generation", id.Generation, "pid", from.pid, "socket of", from.stage)
		}
		return relay.Caller{}, false
	}
	return relay.Caller{
		Stage: id.Stage, Socket: id.Socket, User: id.User, Groups: id.Groups, Delegates: id.Delegates,
		Staged: staged(id.Staged), Canary: id.Canary,
		MayRewrite: id.Grants.Rewrite, MayDelegate: id.Grants.Delegates, Trusted: id.Grants.Trusted(), ReadOnly: id.ReadOnly,
	}, ok
}

// refuse responds to a request that a stage is not granted to make.
func (r *routing) refuse(w http.ResponseWriter, req *http.Request, refusal relay.Refusal) {
	if r.limits.due.Due(refusal.Stage + " " + refusal.Reason) {
		r.log.Warn("a request of a stage is refused", "stage", refusal.Stage, "tried to", refusal.Reason,
			"missing", "stages."+refusal.Stage+".grants."+refusal.Grant)
	}
	r.front.Refuse(w, req, refusal)
}

func staged(all map[string]supervisor.Staged) map[string]relay.Staged {
	if len(all) == 0 {
		return nil
	}
	staged := make(map[string]relay.Staged, len(all))
	for name, st := range all {
		staged[name] = relay.Staged{Socket: st.Socket, Claims: stagev1.DecodeClaims(st.Claims),
			Kubernetes: st.Grants.Kubernetes(), OtherAPI: st.OtherAPI}
	}
	return staged
}

// as gives a request the identity that the configuration has for the stage that calls.
func (r *routing) as(req *http.Request, caller relay.Caller) *http.Request {
	if !caller.Trusted {
		r.level.Want()
	}
	ctx := front.WithLoopbackUser(req.Context(), caller.User, caller.Groups)
	if slices.Contains(r.followers, caller.Stage) {
		ctx = front.WithFollower(ctx)
	}
	req = req.WithContext(ctx)
	req.RemoteAddr = front.LoopbackAddress
	return req
}
