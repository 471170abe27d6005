package scheduling

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain makes the test binary a program that sets the policy in its arguments and prints the policies and nice values of its threads.
func TestMain(m *testing.M) {
	if policy, ok := os.LookupEnv("SCHEDULING_TEST_SET"); ok {
		if err := Set(policy); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if os.Getenv("SCHEDULING_TEST_PRINT") != "" {
		for text := range policies() {
			fmt.Println(text)
		}
		return
	}
	os.Exit(m.Run())
}

// policies are the policies of the threads of this process, with the nice value, and how many threads have each.
func policies() map[string]int {
	found := map[string]int{}
	entries, _ := os.ReadDir(threads)
	for _, e := range entries {
		id, _ := strconv.Atoi(e.Name())
		if attr, err := unix.SchedGetAttr(id, 0); err == nil {
			found[fmt.Sprint(attr.Policy, " nice ", attr.Nice)]++
		}
	}
	return found
}

// child runs this program from a thread with a policy and a nice value, and returns what it prints.
func child(t *testing.T, policy uint32, nice int32, set string) string {
	t.Helper()
	type result struct {
		out []byte
		err error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocks it: the thread ends
		err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: policy, Nice: nice}, 0)
		if err != nil {
			done <- result{err: err}
			return
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "SCHEDULING_TEST_PRINT=1")
		if set != "" {
			cmd.Env = append(cmd.Env, "SCHEDULING_TEST_SET="+set)
		}
		out, err := cmd.CombinedOutput()
		done <- result{out, err}
	}()
	r := <-done
	if r.err != nil {
		t.Fatalf("%v\n%s", r.err, r.out)
	}
	return strings.TrimSpace(string(r.out))
}

func TestSet(t *testing.T) {
	t.Parallel()
	own, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		given uint32
		nicer int32 // than this process
		set   string
		want  uint32
	}{
		{unix.SCHED_NORMAL, 0, Batch, unix.SCHED_BATCH},
		{unix.SCHED_NORMAL, 2, Batch, unix.SCHED_BATCH},
		{unix.SCHED_NORMAL, 0, Other, unix.SCHED_NORMAL},
		{unix.SCHED_BATCH, 0, Other, unix.SCHED_NORMAL},
		{unix.SCHED_BATCH, 1, Batch, unix.SCHED_BATCH},
		{unix.SCHED_IDLE, 0, Batch, unix.SCHED_IDLE}, // the operator's
		{unix.SCHED_IDLE, 0, Other, unix.SCHED_IDLE},
		{unix.SCHED_BATCH, 2, "", unix.SCHED_BATCH}, // what the child of a process inherits
	} {
		nice := min(own.Nice+tc.nicer, 19)
		t.Run(fmt.Sprint(tc.given, " nice ", nice, " ", tc.set), func(t *testing.T) {
			t.Parallel()
			if got, want := child(t, tc.given, nice, tc.set), fmt.Sprint(tc.want, " nice ", nice); got != want {
				t.Errorf("the threads have %q, want %q", got, want)
			}
		})
	}
}

// Threads that start while the policy is set have it too.
func TestThreadsThatStart(t *testing.T) {
	for range 10 {
		for policy, number := range map[string]string{Other: "0", Batch: "3"} {
			var starting, threads sync.WaitGroup
			set, end := make(chan struct{}), make(chan struct{})
			starting.Go(func() {
				for range 100 {
					started := make(chan struct{})
					threads.Go(func() {
						runtime.LockOSThread() // takes a thread, which ends with the goroutine
						close(started)
						<-end
					})
					<-started
					select {
					case <-set:
						return
					default:
					}
				}
			})
			if err := Set(policy); err != nil {
				t.Fatal(err)
			}
			close(set)
			starting.Wait()
			for text, n := range policies() {
				if !strings.HasPrefix(text, number+" ") {
					t.Errorf("after Set(%s), %d threads have policy %s", policy, n, text)
				}
			}
			close(end)
			threads.Wait()
		}
	}
}
