package callers

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/catena-dev/catena/host/internal/guard"
)

// A token is good for nobody whom the system should know and does not, whatever the system call says, and for no process that
// is of no stage.
func TestProcessThatIsOfNoStage(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		pid  int
		err  error
		want bool
	}{
		{0, fmt.Errorf("peer credentials: %w", syscall.ENOSYS), false},
		{0, fmt.Errorf("peer credentials: %w", syscall.EOPNOTSUPP), false},
		{0, syscall.ENOTCONN, false},
		{0, guard.ErrNoPeers, true},
		{os.Getpid(), nil, false},
		{0, nil, false},
	} {
		if got := New(nil).AreOf("core", guard.Peer{PID: tc.pid}, tc.err); got != tc.want {
			t.Errorf("process %d, %v: %t, want %t", tc.pid, tc.err, got, tc.want)
		}
	}
}
