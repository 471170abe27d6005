package sdk

import (
	"net"

	"github.com/hashicorp/go-hclog"
)

// hostListener is a listener that accepts the host's connections and closes all others.
type hostListener struct {
	net.Listener
	pid, uid int
	log      hclog.Logger
}

// Accept returns the next connection of the host.
func (l hostListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		err = checkPeer(conn, l.pid, l.uid)
		if err == nil {
			return conn, nil
		}
		l.log.Warn("refused a connection to the data socket", "error", err)
		_ = conn.Close()
	}
}
