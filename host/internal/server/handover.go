package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/handover"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

const (
	// checkTimeout is how long another program may take to check whether it could take over.
	checkTimeout = time.Minute
	// takeOverTimeout is how long a program that has taken over may take to be ready. Then it hands back.
	takeOverTimeout = 2 * time.Minute
	// handOverTimeout is how long it may take until there is a server again, the way back included.
	handOverTimeout = 3 * takeOverTimeout
)

// allowOlder is what lets a host go to an older release of Kubernetes.
const allowOlder = "older"

var errNotReady = fmt.Errorf("the server was not ready %s after it had taken over", takeOverTimeout)

// upgradeHost ends the run so that another program goes on in this process. An error leaves all as it is.
func (r *run) upgradeHost(ctx context.Context, req admin.HostUpgradeRequest) error {
	if !r.chain.serving.Load() || !r.front.WasReady() {
		return admin.ErrStarting
	}
	end, err := r.stages.Begin(ctx, supervisor.UpgradeHost, "")
	if err != nil {
		return err
	}
	h, err := r.prepareHandover(ctx, req)
	if err != nil {
		end()
		return err
	}
	r.logs.host.Info("the host hands over to another program", "binary", h.Program, "by", h.By)
	r.notifier.handOver()
	r.front.HandOver()
	r.end(h)
	return nil
}

// prepareHandover has the other program check whether it could take over.
func (r *run) prepareHandover(ctx context.Context, req admin.HostUpgradeRequest) (*handover.Handover, error) {
	self := r.Handover.Self
	if self == nil {
		return nil, errors.New("this host was not started as one that can be replaced")
	}
	path := req.Binary
	if path == "" {
		path = self.Path()
	}
	b, err := process.Check(path)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := r.checkVersion(ctx, b.Path, req.Allow); err != nil {
		return nil, err
	}
	check := exec.CommandContext(ctx, b.Path)
	check.Args = slices.Clone(os.Args)
	check.Env = handover.CheckEnvironment()
	if out, err := check.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s could not take over: %w: %s", b.Path, err, strings.TrimSpace(string(out)))
	}
	listener, err := r.front.ListenerFile()
	if err != nil {
		return nil, err
	}
	what := "upgrade"
	if req.Binary != "" {
		what += " --binary " + req.Binary
	}
	return &handover.Handover{
		Change:  handover.Change{By: admin.CallerOf(ctx), At: time.Now(), What: what, From: r.Version},
		Program: b.Path, Listener: listener, Arguments: os.Args, Environment: r.Systemd.Environ(os.Environ()), Self: self,
	}, nil
}

// checkVersion returns an error if a program is no host that can take over, or of an older release of Kubernetes.
func (r *run) checkVersion(ctx context.Context, path string, allowed []string) error {
	out, err := exec.CommandContext(ctx, path, "version", "-o", "json").Output()
	if err != nil {
		return fmt.Errorf("%s version: %w", path, err)
	}
	var v struct {
		Catena     string `json:"catena"`
		Kubernetes string `json:"kubernetes"`
		Handover   bool   `json:"handover"`
	}
	if err := json.Unmarshal(out, &v); err != nil || v.Catena == "" {
		return fmt.Errorf("%s is not catena: its version is %q", path, strings.TrimSpace(string(out)))
	}
	if !v.Handover {
		return fmt.Errorf("%s (%s) cannot take the place of a running host: it is too old. Stop this one and start it", path, v.Catena)
	}
	was, err := utilversion.ParseGeneric(r.front.Version())
	if err != nil {
		return err
	}
	is, err := utilversion.ParseGeneric(v.Kubernetes)
	if err != nil {
		return fmt.Errorf("%s: release %q of Kubernetes: %w", path, v.Kubernetes, err)
	}
	if is.LessThan(was) && !slices.Contains(allowed, allowOlder) {
		return fmt.Errorf("%s is of Kubernetes %s, older than %s, which runs: it may not read what this one has written; --allow %s goes there all the same",
			path, v.Kubernetes, r.front.Version(), allowOlder)
	}
	return nil
}

// takeOver gives a server that has taken the place of another one time to be ready, and records how it went.
func (r *run) takeOver(ctx context.Context) {
	i := r.Handover
	if !i.TakesOver() {
		return
	}
	select {
	case <-r.front.Ready():
	case <-time.After(takeOverTimeout):
		r.front.Fail(errNotReady)
		return
	case <-ctx.Done():
		return
	}
	i.Settle()
	r.notifier.takenOver()
	took := time.Since(i.At)
	r.history.change(admin.Change{At: i.At, By: i.By, What: i.What, TookSeconds: took.Seconds(), Error: i.Problem})
	if i.Problem != "" {
		r.logs.host.Error("the other program has failed: this one has its place back", "error", i.Problem, "took",
			took.Round(time.Millisecond))
		return
	}
	r.logs.host.Info("took over from another program", "from", i.From, "by", i.By, "took", took.Round(time.Millisecond))
}
