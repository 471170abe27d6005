package process

import (
	"context"
	"fmt"
	"net"

	"github.com/hashicorp/go-plugin"
)

// Control is how the control socket of a process is protected.
type Control string

const (
	// ControlMTLS: host and stage have shown each other one-time certificates (go-plugin's AutoMTLS).
	ControlMTLS Control = "mtls"
	// ControlFolder: the socket is in a folder of mode 0700, and on Linux the host has
	// checked that it belongs to the process that it has launched.
	ControlFolder Control = "folder"
)

// Control says how the control socket is protected. The stage chooses, by offering a
// certificate in its handshake or none.
func (p *Process) Control() Control {
	if line, _, _ := p.greeting.verdict(); offersCertificate(line) {
		return ControlMTLS
	}
	return ControlFolder
}

// useControl makes go-plugin's client do without TLS if the stage offers no certificate.
// go-plugin itself would look for one of the system's.
func (p *Process) useControl(config *plugin.ClientConfig) {
	if p.Control() == ControlFolder {
		config.TLSConfig = nil
	}
}

// dialControl connects to the control socket.
func (p *Process) dialControl(ctx context.Context, _ string) (net.Conn, error) {
	line, _, _ := p.greeting.verdict()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", handshakeFields(line)[3])
	if err != nil || p.Control() == ControlMTLS {
		return conn, err
	}
	if err := checkListener(conn.(*net.UnixConn), p.PID()); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return conn, nil
}
