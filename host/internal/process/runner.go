package process

import (
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/hashicorp/go-plugin/runner"
)

// pluginRunner is a process as go-plugin sees it. go-plugin gets the handshake line
// as all of its standard output and nothing of its standard error, so that its
// own scanning, log parsing and waiting for the ends of pipes do not matter.
type pluginRunner struct {
	child    *child
	greeting *greeting
	name     string
	launch   func(context.Context) error
}

var _ runner.Runner = (*pluginRunner)(nil)

func (r *pluginRunner) Start(ctx context.Context) error { return r.launch(ctx) }

func (r *pluginRunner) Stdout() io.ReadCloser { return r.greeting.read }

func (r *pluginRunner) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

func (r *pluginRunner) Name() string { return r.name }

// Diagnose has nothing to add: StartError says it.
func (r *pluginRunner) Diagnose(context.Context) string { return "" }

// Wait returns when the process has ended. How it ended is told by Process.Err.
func (r *pluginRunner) Wait(context.Context) error {
	<-r.child.done
	return nil
}

// Kill does nothing: go-plugin would kill a process that is about to tell why it
// ends. Start and Process.Stop kill where it is due.
func (r *pluginRunner) Kill(context.Context) error { return nil }

func (r *pluginRunner) ID() string {
	if pid := r.child.pid(); pid != 0 {
		return strconv.Itoa(pid)
	}
	return ""
}

func (r *pluginRunner) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}

func (r *pluginRunner) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}
