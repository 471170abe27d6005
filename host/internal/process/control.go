package process

import (
	"context"
	"fmt"
	"net"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/catena-dev/catena/host/internal/guard"
)

// Control is how the control socket of a process is protected.
type Control string

const (
	// ControlMTLS means mutual TLS with one-time certificates (go-plugin's AutoMTLS).
	ControlMTLS Control = "mtls"
	// ControlDirectory means that the socket is in a directory of mode 0700, and on Linux that
	// the process at its other end is the one that the host has launched.
	ControlDirectory Control = "directory"
)

// Control returns how the control socket is protected. The stage chooses: a handshake
// with a certificate means mutual TLS.
func (p *Process) Control() Control {
	if line, _, _ := p.handshake.result(); offersCertificate(line) {
		return ControlMTLS
	}
	return ControlDirectory
}

// useControl switches go-plugin's TLS off if the stage offers no certificate: go-plugin itself
// would verify the stage by the certificates of the system.
func (p *Process) useControl(config *plugin.ClientConfig) {
	if p.Control() == ControlDirectory {
		config.TLSConfig = nil
	}
}

// dialControl connects to the control socket.
func (p *Process) dialControl(ctx context.Context, _ string) (net.Conn, error) {
	line, _, _ := p.handshake.result()
	conn, err := guard.Dial(ctx, handshakeFields(line)[3])
	if err != nil || p.Control() == ControlMTLS {
		return conn, err
	}
	if err := checkListener(conn.(*net.UnixConn), p.PID(), p.launcher.UID()); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return conn, nil
}

// ControlSocket returns the path of the control socket.
func (p *Process) ControlSocket() string {
	line, _, _ := p.handshake.result()
	return handshakeFields(line)[3]
}

// Conn returns the connection to the control socket, for calls that Client has no method for.
func (p *Process) Conn() (grpc.ClientConnInterface, error) {
	protocol, err := p.plugin.Client()
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	client, ok := protocol.(*plugin.GRPCClient)
	if !ok {
		return nil, fmt.Errorf("go-plugin returned a %T", protocol)
	}
	return client.Conn, nil
}
