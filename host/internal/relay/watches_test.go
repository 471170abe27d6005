package relay

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catena-dev/catena/host/internal/relay/h1"
)

// unixPair returns the two ends of a connection.
func unixPair(t *testing.T) (ends [2]*net.UnixConn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "")
		c, err := net.FileConn(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
		t.Cleanup(func() { _ = c.Close() })
	}
	return ends
}

// A watch whose side has changed ends within the spread, and not any more once the chain has ended.
func TestSplitEndsWithTheChain(t *testing.T) {
	t.Parallel()
	for name, ended := range map[string]bool{"serving": false, "ended": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ends := unixPair(t)
				conn, err := h1.NewConn(ends[0])
				if err != nil {
					t.Fatal(err)
				}
				chain := NewChain(Config{})
				chain.Set(Tables{All: order(1)}, []Stage{{Name: "a", Socket: "old"}})
				chain.addWatch(1, openWatch{r: httptest.NewRequest(http.MethodGet, "/watch?new", nil), conn: conn})
				all := Tables{All: order(1)}
				chain.SetSplit(all, []Stage{{Name: "a", Socket: "old"}}, Split{
					Tables: all, Stages: []Stage{{Name: "a", Socket: "new"}}, Share: 0.5, Includes: isNew, Spread: time.Minute,
				})
				synctest.Wait()
				if ended {
					chain.Close()
				}
				time.Sleep(2 * time.Minute)
				if _, err := ends[1].Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
				_, err = ends[0].Read(make([]byte, 1))
				if cut := errors.Is(err, os.ErrDeadlineExceeded); cut == ended {
					t.Errorf("the watch was cut off: %t (%v)", cut, err)
				}
			})
		})
	}
}
