package server

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/catena-dev/catena/host/internal/guard"
)

// TestPeerThatIsNotKnown shows that a token is good for nobody whom the system should know and does not, whatever
// the system call says.
func TestPeerThatIsNotKnown(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err  error
		want bool
	}{
		{fmt.Errorf("peer credentials: %w", syscall.ENOSYS), false},
		{fmt.Errorf("peer credentials: %w", syscall.EOPNOTSUPP), false},
		{syscall.ENOTCONN, false},
		{guard.ErrNoPeers, true},
	} {
		if got := (&peer{err: tc.err}).isPartOf(os.Getpid()); got != tc.want {
			t.Errorf("%v: %t, want %t", tc.err, got, tc.want)
		}
	}
}
