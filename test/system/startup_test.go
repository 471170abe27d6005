package system

import (
	"net"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

func freePort(t *testing.T) string {
	t.Helper()
	port, err := cluster.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := newSite(t)
	s.refused(t, runCatena(t, s.args("--secure-port", port)...), "127.0.0.1:"+port, "in use", "secure-port")
	l.Close()
	s.works(t, s.args("--secure-port", port)...)
}
