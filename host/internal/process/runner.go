package process

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-plugin/runner"

	"github.com/catena-dev/catena/host/internal/panics"
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
	return discard(r.dir)
}

// discard removes a control directory by another name, so that nothing else does.
func discard(dir string) error {
	ended := dir + "-ended"
	if err := os.Rename(dir, ended); errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return removeInTime(ended)
}

// removeTime is how long the start and the end of a process may wait for the removal of what a stage has left.
const removeTime = time.Second

// removeInTime removes a control directory. What takes longer than removeTime goes on in the background; the next start
// of the host removes what its end has interrupted.
func removeInTime(dir string) error {
	removed := make(chan error, 1)
	go func() { removed <- panics.Call(func() error { return removeTree(dir) }) }()
	select {
	case err := <-removed:
		return err
	case <-time.After(removeTime):
		return nil
	}
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
