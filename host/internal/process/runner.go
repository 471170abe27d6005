package process

import (
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/hashicorp/go-plugin/runner"
)

// pluginRunner is a process for go-plugin. Its standard output holds the handshake line only
// and its standard error nothing, so that go-plugin's own scanning, log parsing and
// waiting for the ends of pipes do not matter.
type pluginRunner struct {
	child     *child
	handshake *handshake
	name      string
	dir       string // with the control socket
	launch    func(context.Context) error
}

var _ runner.Runner = (*pluginRunner)(nil)

func (r *pluginRunner) Start(ctx context.Context) error { return r.launch(ctx) }

func (r *pluginRunner) Stdout() io.ReadCloser { return r.handshake.read }

func (r *pluginRunner) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

func (r *pluginRunner) Name() string { return r.name }

// Diagnose returns nothing: StartError has the diagnosis.
func (r *pluginRunner) Diagnose(context.Context) string { return "" }

// Wait returns when the process has ended, and its control directory is removed: go-plugin would do that with a
// descriptor for each level of what the stage has put there. Process.Err returns how it has ended.
func (r *pluginRunner) Wait(context.Context) error {
	<-r.child.done
	return removeTree(r.dir)
}

// Kill does nothing: go-plugin would kill a process that is about to report why it
// ends. Start and Process.Stop kill when it is time.
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
