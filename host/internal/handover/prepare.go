package handover

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

	"github.com/catena-dev/catena/host/internal/process"
)

// checkTimeout is how long another program may take to check whether it could take over.
const checkTimeout = time.Minute

// AllowOlder is what lets a host go to an older release of Kubernetes.
const AllowOlder = "older"

// Request is a program that is to take over.
type Request struct {
	// Binary is the path of the program; empty for the present one, from where it was started.
	Binary string
	// Allow has AllowOlder, or is empty.
	Allow []string
	// By is who has asked for it.
	By string
	// Version and Kubernetes are those of the present program.
	Version, Kubernetes string
	// Environment is that of the other program.
	Environment []string
}

// Prepare has the other program check whether it could take over. Listener returns a duplicate of the socket that the
// host listens on, which is asked for last. An error leaves all as it is.
func (i *Inherited) Prepare(ctx context.Context, req Request, listener func() (*os.File, error)) (*Handover, error) {
	if i == nil || i.Self == nil {
		return nil, errors.New("this host was not started as one that can be replaced")
	}
	path, what := i.Self.Path(), "upgrade"
	if req.Binary != "" {
		path, what = req.Binary, "upgrade --binary "+req.Binary
	}
	b, err := process.Check(path)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := req.checkVersion(ctx, b.Path); err != nil {
		return nil, err
	}
	check := exec.CommandContext(ctx, b.Path)
	check.Args, check.Env = slices.Clone(os.Args), CheckEnvironment()
	if out, err := check.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s could not take over: %w: %s", b.Path, err, strings.TrimSpace(string(out)))
	}
	h := &Handover{
		Change:  Change{By: req.By, At: time.Now(), What: what, From: req.Version},
		Program: b.Path, Arguments: os.Args, Environment: req.Environment, Self: i.Self,
	}
	if h.Listener, err = listener(); err != nil {
		return nil, err
	}
	return h, nil
}

// checkVersion returns an error if a program is no host that can take over, or of an older release of Kubernetes.
func (r Request) checkVersion(ctx context.Context, path string) error {
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
		return fmt.Errorf("%s (%s) cannot take the place of a running host: it is too old. Stop this one and start it",
			path, v.Catena)
	}
	was, err := utilversion.ParseGeneric(r.Kubernetes)
	if err != nil {
		return err
	}
	is, err := utilversion.ParseGeneric(v.Kubernetes)
	if err != nil {
		return fmt.Errorf("%s: release %q of Kubernetes: %w", path, v.Kubernetes, err)
	}
	if is.LessThan(was) && !slices.Contains(r.Allow, AllowOlder) {
		return fmt.Errorf("%s is of Kubernetes %s, older than %s, which runs: it may not read what this one has written;"+
			" --allow %s goes there all the same", path, v.Kubernetes, r.Kubernetes, AllowOlder)
	}
	return nil
}
