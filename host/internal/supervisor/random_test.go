package supervisor

import (
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestRandomChanges does what the other tests do one after the other, at random and all
// at the same time, with reads that must all get a response. SUPERVISOR_TEST_SEED repeats a
// run.
func TestRandomChanges(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	if s, err := strconv.ParseUint(os.Getenv("SUPERVISOR_TEST_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("SUPERVISOR_TEST_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	f := ready(t, func(o *options) {
		o.Chain[0].Standby, o.Chain[2].Standby = true, true
		o.HoldTimeout = time.Hour
	})
	specs := f.Specs()
	a, b, c := specs[0], specs[1], specs[2]
	d := like(b, "d")
	d.Rollback = Rollback{ErrorRate: 0.5, Probation: 300 * time.Millisecond}
	chains := [][]Spec{{a, b, c}, {a, c, b}, {a, d, c}, {a, c, d, b}, {b, a, c}}

	done := make(chan struct{})
	var clients sync.WaitGroup
	var answered, again, killed atomic.Int64
	paths := []string{"/a", "/c"}
	for _, path := range paths {
		clients.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				switch status, body := f.ask("GET", path, ""); status {
				case http.StatusOK:
					answered.Add(1)
				case http.StatusServiceUnavailable: // two processes have died under it
					again.Add(1)
				default:
					t.Errorf("%s: %d %s", path, status, body)
					return
				}
			}
		})
	}
	kill := func(name string, others bool) {
		for _, st := range f.Status() {
			if st.Stage != name {
				continue
			}
			pids := []int{st.PID}
			for _, g := range st.Others { // those of a swap, or of a probation
				if others {
					pids = append(pids, g.PID)
				}
			}
			for _, pid := range pids {
				if pid != 0 && syscall.Kill(pid, syscall.SIGKILL) == nil {
					killed.Add(1)
				}
			}
		}
	}
	for range 8 {
		var step sync.WaitGroup
		names := []string{"a", "b", "c", "d"}
		switch n := random.IntN(len(names)); random.IntN(4) {
		case 0:
			kill(names[n], true)
		case 1:
			step.Go(func() { _, _ = f.Swap(t.Context(), names[n], SwapOptions{}) })
		default:
			step.Go(func() { _, _ = f.Apply(t.Context(), chains[n%len(chains)]) })
			step.Go(func() { _, _ = f.Swap(t.Context(), "a", SwapOptions{Rollback: Rollback{Probation: time.Second}}) })
			if random.IntN(2) == 0 {
				kill(names[n], random.IntN(2) == 0)
			}
		}
		step.Wait()
	}
	eventually(t, "the chain can be changed", func() bool {
		_, err := f.Apply(t.Context(), chains[0])
		return err == nil
	})
	for _, name := range []string{"a", "b", "c"} {
		eventually(t, name+" answers", func() bool {
			status, _ := f.ask("GET", "/"+name, "")
			return status == http.StatusOK
		})
	}
	close(done)
	clients.Wait()
	// Two processes have to die under one request.
	if most := killed.Load() / 2 * int64(len(paths)); again.Load() > most {
		t.Errorf("%d reads got no response, of %d clients, with %d processes killed", again.Load(), len(paths), killed.Load())
	}
	t.Logf("%d reads, %d sent again by the client, %d processes killed", answered.Load(), again.Load(), killed.Load())
	off := f.Specs()
	off[0].Standby, off[2].Standby = false, false
	if _, err := f.Apply(t.Context(), off); err != nil {
		t.Error(err)
	}
	f.settled(t)
}
