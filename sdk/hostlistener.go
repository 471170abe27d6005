package sdk

import (
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// hostListener is a listener that accepts the host's connections and closes all others.
type hostListener struct {
	net.Listener
	pid, uid int
	log      refusals
}

// refusals logs connections that are refused, one in refusalPause: others can make them without end.
type refusals struct {
	hclog.Logger
	last atomic.Int64
}

const refusalPause = 10 * time.Second

func (r *refusals) refused(socket string, err error) {
	now, last := time.Now().UnixNano(), r.last.Load()
	if now-last >= int64(refusalPause) && r.last.CompareAndSwap(last, now) {
		r.Warn("refused a connection to the "+socket+" socket", "error", err)
	}
}

func newHostListener(l net.Listener, pid int, log hclog.Logger) *hostListener {
	return &hostListener{Listener: l, pid: pid, uid: os.Geteuid(), log: refusals{Logger: log}}
}

// Accept returns the next connection of the host.
func (l *hostListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		err = checkPeer(conn, l.pid, l.uid)
		if err == nil {
			return conn, nil
		}
		l.log.refused("data", err)
		_ = conn.Close()
	}
}
