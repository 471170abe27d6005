package h1

import (
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connPair returns the two ends of a connection to a stage.
func connPair(t testing.TB) (near *Conn, far *net.UnixConn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
	}
	near, err = NewConn(ends[0])
	if err != nil {
		t.Fatal(err)
	}
	return near, ends[1]
}

// TestSilent shows what makes an idle connection unusable.
func TestSilent(t *testing.T) {
	t.Parallel()
	near, far := connPair(t)
	if !near.Silent() {
		t.Error("a silent connection is not usable")
	}
	far.Write([]byte("x"))
	if near.Silent() {
		t.Error("a connection with data is usable")
	}
	near, far = connPair(t)
	far.Close()
	if near.Silent() {
		t.Error("a connection that the stage has closed is usable")
	}
	near.Abort()
	if near.Silent() {
		t.Error("a closed connection is usable")
	}
}

// TestPool shows that no more than MaxIdle connections are kept, that the one that was
// used last is used first, and that those that have not been used for long are closed.
func TestPool(t *testing.T) {
	t.Parallel()
	var p Pool
	var all []*Conn
	for range MaxIdle + 10 {
		c, far := connPair(t)
		defer far.Close()
		all = append(all, c)
		if evicted := p.Put(c); (evicted != nil) != (len(all) > MaxIdle) {
			t.Fatalf("with %d connections, %v is evicted", len(all), evicted)
		} else if evicted != nil {
			evicted.Close()
		}
	}
	if n := p.Len(); n != MaxIdle {
		t.Errorf("%d idle connections, want %d", n, MaxIdle)
	}
	last := all[len(all)-1]
	if p.Take() != last {
		t.Error("not the one that was used last")
	}
	old := p.idle[0]
	old.idleSince = time.Now().Add(-2 * MaxIdleTime)
	if p.Put(last) != old {
		t.Error("a connection that is not used is kept")
	}
	old.Close()
	p.Close()
	if last.Silent() || p.Take() != nil {
		t.Error("a connection outlives the pool")
	}
}
