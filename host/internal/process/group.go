package process

import (
	"fmt"
	"os"

	"github.com/catena-dev/catena/host/internal/cgroup"
	"github.com/catena-dev/catena/host/internal/isolation"
)

// join has the process start in a group of its own, if it is isolated or limited. The machine may
// have no groups; a limit that cannot be in force then is logged, or an error if the stage
// requires its isolation.
func (p *Process) join(attr *os.ProcAttr, inherit *inheritance) error {
	limits := p.spec.Limits
	if p.spec.Isolation.Mode == isolation.Off && limits == (cgroup.Limits{}) {
		return nil
	}
	lacks := p.spec.Cgroups.Lacks(limits)
	if p.spec.Cgroups.Err() == nil {
		if err := p.makeGroup(attr, inherit); err != nil {
			p.spec.Logger.Debug("has no cgroup", "error", err)
			lacks = lackAll(limits, err)
		}
	}
	return p.reportLacks(lacks)
}

// makeGroup makes the group, which release removes.
func (p *Process) makeGroup(attr *os.ProcAttr, inherit *inheritance) error {
	group, err := p.spec.Cgroups.New(p.spec.Stage+"-"+p.spec.ID, p.spec.Limits)
	if err != nil {
		return err
	}
	dir, err := group.Open()
	if err != nil {
		_ = group.Remove()
		return err
	}
	inherit.own = append(inherit.own, dir)
	startIn(attr.Sys, dir)
	p.child.group = group
	return nil
}

// lackAll are all of the limits that only a group can have.
func lackAll(limits cgroup.Limits, err error) []cgroup.Lack {
	lacks := (*cgroup.Tree)(nil).Lacks(limits)
	for i := range lacks {
		lacks[i].Err = err
	}
	return lacks
}

// reportLacks reports the limits that are not in force. That of memory is kept by the host.
func (p *Process) reportLacks(lacks []cgroup.Lack) error {
	for _, lack := range lacks {
		key := fmt.Sprintf("stages.%s.limits.%s", p.spec.Stage, lack.Limit)
		switch {
		case lack.Limit == cgroup.Memory:
		case p.spec.Isolation.Mode == isolation.Required:
			return fmt.Errorf("%s cannot be in force, and isolation is required: %w", key, lack.Err)
		default:
			p.spec.Logger.Warn("a limit is not in force", "limit", key, "lacks", lack.Err)
		}
	}
	return nil
}

// leave removes the group of the process, which has ended or was never started.
func (p *Process) leave() {
	if err := p.child.group.Remove(); err != nil {
		p.spec.Logger.Debug("its cgroup is left until the next start of the host", "error", err)
	}
}
