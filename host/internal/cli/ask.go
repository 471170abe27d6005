package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/declared"
	"github.com/catena-dev/catena/host/internal/isolation"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/sdk/klogr"
)

// askTimeout bounds the start of a plugin that is only asked, and each of its responses.
const askTimeout = 15 * time.Second

// askPlugin starts a binary as a stage, without configuring it, for as long as ask takes. It must be
// one that the configuration and the lock file let the stage be, and is isolated as that.
func askPlugin(ctx context.Context, cfg *config.Config, b process.Binary, ask func(context.Context, *process.Process) error) error {
	return askApproved(ctx, cfg, b, declared.Approval(cfg, b.Name, b.Path), ask)
}

// askApproved is askPlugin for a binary that approve accepts.
func askApproved(ctx context.Context, cfg *config.Config, b process.Binary, approve func(process.Contents) error, ask func(context.Context, *process.Process) error) (err error) {
	st := cfg.Stages[b.Name]
	// gRPC, which logs through klog here, has a lot to say about connections that end.
	if err := klogr.Install(hclog.NewNullLogger(), "", ""); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "catena-")
	if err != nil {
		return fmt.Errorf("directory for sockets: %w", err)
	}
	defer os.RemoveAll(dir)
	l, err := process.NewListener(dir, b.Name)
	if err != nil {
		return err
	}
	defer l.Close()
	isolated, err := declared.Isolation(cfg, b.Name)
	if err != nil {
		return err
	}
	var machine *isolation.Machine
	if isolated.Mode != isolation.Off {
		machine = isolation.Detect(ctx)
	}
	p, err := process.Start(ctx, process.Spec{
		Stage: b.Name, Binary: b.Path, SHA256: st.Sha256, Approve: approve, Env: st.Env,
		Listener: l, RuntimeDir: dir, StartTimeout: askTimeout, Logger: hclog.NewNullLogger(),
		Isolation: isolated, Machine: machine,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	err = ask(ctx, p)
	return errors.Join(err, p.Kill(context.WithoutCancel(ctx)))
}
