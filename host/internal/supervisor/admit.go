package supervisor

import (
	"context"
	"fmt"

	"github.com/catena-dev/catena/host/internal/generation"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Move is a stage of Kubernetes whose requests are about to go to another process, which is prepared and has written nothing.
type Move struct {
	Stage string
	// From and To describe the process that serves and the other.
	From, To *stagev1.DescribeResponse
	// Flags are those of the API server that the other gets, each as name=value, and Emulates the minor release as which it
	// serves; empty if it is its own.
	Flags    []string
	Emulates string
	// Socket is the data socket of the other.
	Socket string
	// With describes the processes, by stage, to which others go in the same change.
	With map[string]*stagev1.DescribeResponse
	// Allow names what may be in the way.
	Allow []string
}

// admit asks whether a stage may go to the process that is prepared, if both describe a release of Kubernetes.
func (c *change) admit(ctx context.Context, m *member) error {
	s := c.supervisor
	held := s.lock()
	old := m.stage.guarded.current()
	held.unlock()
	if s.outlet.Admit == nil || old == nil {
		return nil
	}
	from, to := old.Description(), m.generation.Description()
	if from.GetKubernetes() == nil || to.GetKubernetes() == nil {
		return nil
	}
	flags, err := m.generation.Flags()
	if err != nil {
		return err
	}
	with := map[string]*stagev1.DescribeResponse{}
	for _, other := range c.members {
		if other != m && other.generation != nil {
			with[other.spec.Name] = other.generation.Description()
		}
	}
	return s.outlet.Admit(ctx, Move{
		Stage: m.stage.name, From: from, To: to, Flags: flags,
		Emulates: Emulates(m.spec.Process, to.GetKubernetes().GetRelease()),
		Socket:   m.generation.Listener().Path(), With: with, Allow: c.allow,
	})
}

// cameBack reports a stage that has come back from a binary of another release of Kubernetes than that of the process
// which has ended. The file of that is gone, and an outage would be worse: it is not refused, but was not decided.
func (s *stage) cameBack(dead, g *generation.Generation) {
	if dead == nil {
		return
	}
	from, to := dead.Description().GetKubernetes().GetRelease(), g.Description().GetKubernetes().GetRelease()
	if from == "" || to == "" || from == to {
		return
	}
	text := fmt.Sprintf("restarted from another release (%s → %s): its file was replaced", from, to)
	held := s.of.lock()
	s.guarded.otherRelease = text
	held.unlock()
	s.log.Warn("stage is restarted from another release of Kubernetes: its file was replaced", "from", from, "to", to,
		"binary", g.Spec().Binary)
	s.of.events.announce(Event{Kind: ReleaseChanged, Stage: s.name, From: dead.ID(), To: g.ID(), Reason: text})
}
