package stagetest

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// process is a stage in a process of its own.
type process struct {
	plugin   *plugin.Client
	command  *exec.Cmd
	lifeline *os.File
	once     sync.Once
}

// launchProcess starts the program as the host does.
func (s *Stage) launchProcess(t testing.TB, command *exec.Cmd) {
	t.Helper()
	listener, err := s.data.File()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	parent, lifeline, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer parent.Close()
	command.ExtraFiles = []*os.File{listener, parent}
	command.Env = append(os.Environ(), append(command.Env,
		stagev1.EnvListener+"="+strconv.Itoa(3),
		stagev1.EnvParent+"="+strconv.Itoa(4),
		stagev1.EnvLogLevel+"=trace")...)
	p := &process{command: command, lifeline: lifeline}
	p.plugin = plugin.NewClient(&plugin.ClientConfig{
		Cmd:              command,
		HandshakeConfig:  stagev1.Handshake(),
		Plugins:          stagev1.Plugins(nil),
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		AutoMTLS:         true,
		SkipHostEnv:      true,
		Stderr:           s.logs,
		Logger:           hclog.NewNullLogger(),
	})
	s.process = p
	t.Cleanup(func() {
		p.plugin.Kill()
		_ = lifeline.Close()
	})
	protocol, err := p.plugin.Client()
	if err != nil {
		t.Fatalf("launch %s: %v\n%s", command.Path, err, s.Log())
	}
	raw, err := protocol.Dispense(stagev1.PluginName)
	if err != nil {
		t.Fatal(err)
	}
	s.RPC = raw.(stagev1.StageClient)
}

// PID is the id of the stage's process, 0 if the stage runs in this one.
func (s *Stage) PID() int {
	if s.process == nil {
		return 0
	}
	return s.process.command.Process.Pid
}

// LoseHost makes the stage's process believe that its host is gone.
func (s *Stage) LoseHost() { _ = s.process.lifeline.Close() }

// Exited reports whether the stage's process has ended.
func (s *Stage) Exited() bool { return s.process.plugin.Exited() }

// ExitCode is the status of the stage's process, -1 if it has not ended or was killed.
func (s *Stage) ExitCode() int {
	if !s.Exited() {
		return -1
	}
	return s.process.command.ProcessState.ExitCode()
}

// stop ends the process: by Stop first, then by a signal.
func (p *process) stop(ctx context.Context, t testing.TB, rpc stagev1.StageClient) {
	t.Helper()
	p.once.Do(func() {
		if !p.plugin.Exited() {
			if _, err := rpc.Stop(ctx, &stagev1.StopRequest{}); err != nil {
				t.Errorf("Stop: %v", err)
			}
		}
		p.plugin.Kill()
	})
}
