package usage

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary is also the process that is measured: this variable says what it does.
const envMode = "USAGE_TEST_MODE"

func TestMain(m *testing.M) {
	switch os.Getenv(envMode) {
	case "leader":
		leader()
	case "hog":
		hog(32 << 20)
	default:
		os.Exit(m.Run())
	}
}

// leader starts a process in a session of its own, and reports its id when that holds
// memory, as the leader does itself.
func leader() {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envMode+"=hog")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stdin = os.Stdin
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	_, _ = bufio.NewReader(out).ReadString('\n')
	fmt.Println(cmd.Process.Pid)
	hog(16 << 20)
}

// hog holds memory and has used CPU when it prints a line, until its input ends.
func hog(size int) {
	held := make([]byte, size)
	for i := 0; i < len(held); i += 4096 {
		held[i] = 1
	}
	for began := time.Now(); time.Since(began) < 50*time.Millisecond; {
		held[0]++
	}
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1))
	runtime.KeepAlive(held)
}

func TestDescendantsCount(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envMode+"=leader")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	first, _ := lines.ReadString('\n')
	child, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil {
		t.Fatalf("the process printed %q", first)
	}
	defer func() {
		_ = syscall.Kill(child, syscall.SIGKILL)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	_, _ = lines.ReadString('\n')

	all, err := Of([]int{cmd.Process.Pid, os.Getpid() + 1<<30})
	if err != nil {
		t.Fatal(err)
	}
	u := all[cmd.Process.Pid]
	if len(all) != 1 || len(u.PIDs) != 2 {
		t.Errorf("measured %v, want one leader with 2 processes", all)
	}
	if low, high := int64(48<<20), int64(192<<20); u.Memory < low || u.Memory > high {
		t.Errorf("memory is %d bytes, want %d to %d", u.Memory, low, high)
	}
	if again := Memory(u.PIDs); again < u.Memory/2 || again > 2*u.Memory {
		t.Errorf("memory is %d bytes when it is measured again, and was %d", again, u.Memory)
	}
	if u.CPU < 20*time.Millisecond {
		t.Errorf("CPU time is %s", u.CPU)
	}
	alone, err := Of([]int{child})
	if err != nil || alone[child].Memory >= u.Memory || alone[child].Memory < 32<<20 {
		t.Errorf("the descendant alone: %v, %v", alone, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("42 (a) b) S 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 9 10 11"))
	f.Add([]byte("Name:\tx\nRssAnon:\t     112 kB\nRssFile:\t    1540 kB\nRssShmem:\t       4 kB\n"))
	f.Fuzz(func(_ *testing.T, text []byte) {
		parseStat(text)
		parseStatus(text)
	})
}

func TestParse(t *testing.T) {
	t.Parallel()
	got, ok := parseStat([]byte("42 (a) S 9 9) S 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 9 10 11"))
	if want := (stat{parent: 1, cpu: 260 * time.Millisecond}); !ok || got != want {
		t.Errorf("stat is %+v, want %+v", got, want)
	}
	if got := parseStatus([]byte("Name:\tx\nRssAnon:\t     112 kB\nRssFile:\t    1540 kB\nRssShmem:\t       4 kB\n")); got != 116<<10 {
		t.Errorf("memory is %d", got)
	}
}

// BenchmarkOf measures one look at all processes of the machine.
func BenchmarkOf(b *testing.B) {
	n := 0
	for b.Loop() {
		all, err := processes()
		if err != nil {
			b.Fatal(err)
		}
		if _, err := Of([]int{os.Getpid()}); err != nil {
			b.Fatal(err)
		}
		n = len(all)
	}
	b.ReportMetric(float64(n), "processes")
}
