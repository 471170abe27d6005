package fuzz

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// The environment of a stage, as the configuration of the test has it.
const (
	envSeed    = "FUZZ_SEED"
	envDir     = "FUZZ_DIR" // the stage's data directory
	envOnly    = "FUZZ_ONLY"
	envWithout = "FUZZ_WITHOUT"
)

// lifetime bounds that of a process whatever happens to its host.
const lifetime = 10 * time.Minute

// stage is one process of a stage.
type stage struct {
	name     string
	choices  *choices
	listener net.Listener
	fd       int
	server   *grpc.Server
	// rate is how many calls of a hundred get a response that they should not. A tame process comes up first.
	rate             int
	tame             bool
	calls, described atomic.Int32
	once             sync.Once

	mu       sync.Mutex
	host     *stagev1.Host
	requests []string
}

// runStage is the whole life of a process, which it ends with the returned status unless something else does.
func runStage(name string) int {
	if os.Getenv(stagev1.MagicCookieKey) != stagev1.MagicCookieValue {
		fmt.Fprintln(os.Stderr, "is a stage of Catena")
		return 1
	}
	// Others of the machine matter more; and a host does not end by that of all memory.
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, 10)
	debug.SetMemoryLimit(128 << 20)
	time.AfterFunc(lifetime, func() { os.Exit(4) })
	chosen, _ := strconv.ParseUint(os.Getenv(envSeed), 10, 64)
	number, journal := newProcess(os.Getenv(envDir))
	c := newChoices(chosen, fmt.Sprintf("%s process %d", name, number), os.Getenv(envOnly), os.Getenv(envWithout), journal)
	s := &stage{name: name, choices: c}
	r := c.of("process")
	s.rate, s.tame = []int{2, 10, 30, 70}[r.IntN(4)], !r.one(4)
	c.note(fmt.Sprintf("%s, rate %d, tame %t", c.process, s.rate, s.tame))
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	if err := s.start(r); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go s.log()
	go s.misbehave()
	parent, _ := strconv.Atoi(os.Getenv(stagev1.EnvParent))
	_, _ = os.NewFile(uintptr(parent), "parent").Read(make([]byte, 1))
	if r.fault(4, "process: outlives the host") {
		time.Sleep(20 * time.Second)
	}
	return 3
}

// newProcess returns the number of this process among those with the directory, and its journal.
func newProcess(dir string) (int, *os.File) {
	counter := filepath.Join(dir, "processes")
	text, _ := os.ReadFile(counter)
	n, _ := strconv.Atoi(string(text))
	n++
	_ = os.WriteFile(counter, []byte(strconv.Itoa(n)), 0o600)
	journal, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("journal-%d", n)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return n, nil
	}
	return n, journal
}

// start opens the sockets and writes the handshake, or what is none.
func (s *stage) start(r *source) error {
	var err error
	if s.fd, err = strconv.Atoi(os.Getenv(stagev1.EnvListener)); err != nil {
		return err
	}
	f := os.NewFile(uintptr(s.fd), "data")
	if s.listener, err = net.FileListener(f); err != nil { // f stays open: what happens to the socket happens to the host's, too
		return err
	}
	control := filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "control")
	l, err := net.Listen("unix", control)
	if err != nil {
		return err
	}
	s.serveControl(l)
	handshake := "1|1|unix|" + control + "|grpc|"
	if !s.tame && r.fault(3, "handshake") {
		handshake = []string{
			"", "1|1", "2|1|unix|" + control + "|grpc|", "1|7|unix|" + control + "|grpc|", "1|1|tcp|127.0.0.1:1|grpc|", "1|1|unix|/nothing|grpc|", "1|1|unix|" + control + "|netrpc|",
			handshake + strings.Repeat("A", r.size(1<<20)), string(r.bytes(r.size(1 << 16))), r.text(1 << 16), strings.Repeat("x", r.size(1<<20)),
		}[r.IntN(11)]
	}
	_, err = fmt.Println(handshake)
	return err
}

// exit ends the process at once.
func (s *stage) exit(code int) {
	s.choices.note(fmt.Sprintf("exit %d", code))
	os.Exit(code)
}

// misbehave does what no process should, from time to time.
func (s *stage) misbehave() {
	for {
		r := s.choices.of("process")
		time.Sleep(time.Second + r.upTo(12*time.Second))
		switch r.pick("process: exits", "process: exits", "process: panics", "process: crashes", "process: stops itself", "process: closes its listener", "process: shuts the listener down",
			"process: blocks the listener", "process: has no backlog", "process: closes its output", "process: memory", "process: children", "process: closes the control socket", "process: descriptors") {
		case "process: exits":
			s.exit(r.IntN(256))
		case "process: panics":
			panic(r.text(1 << 12))
		case "process: crashes":
			_ = syscall.Kill(os.Getpid(), []syscall.Signal{syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGKILL, syscall.SIGQUIT}[r.IntN(4)])
		case "process: stops itself":
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		case "process: closes its listener":
			_ = s.listener.Close()
		case "process: shuts the listener down":
			_ = syscall.Shutdown(s.fd, r.IntN(3))
		case "process: blocks the listener":
			for range r.size(1000) {
				_ = syscall.SetNonblock(s.fd, false)
				time.Sleep(r.upTo(100 * time.Millisecond))
				_ = syscall.SetNonblock(s.fd, r.one(2))
			}
		case "process: has no backlog":
			_ = syscall.Listen(s.fd, r.IntN(2))
		case "process: closes its output":
			_ = []*os.File{os.Stdout, os.Stderr}[r.IntN(2)].Close()
		case "process: memory":
			held := make([]byte, 1<<20*r.IntN(500))
			for i := 0; i < len(held); i += 4096 {
				held[i] = 1
			}
			time.Sleep(r.upTo(5 * time.Second))
			_ = held[len(held)/2:]
		case "process: children":
			for range r.size(50) {
				child := exec.Command("/bin/sleep", "60")
				child.Stderr, child.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Setsid: r.one(2)}
				_ = child.Start()
			}
		case "process: closes the control socket":
			s.server.Stop()
		case "process: descriptors":
			for range r.IntN(2000) {
				if _, err := syscall.Dup(s.fd); err != nil {
					break
				}
			}
		}
	}
}

// log writes lines to both outputs.
func (s *stage) log() {
	for {
		r := s.choices.of("output")
		time.Sleep(r.upTo(500 * time.Millisecond))
		var out io.Writer = os.Stderr
		if r.one(3) {
			out = os.Stdout
		}
		lines := 1
		if r.fault(40, "output: flood") {
			lines = r.IntN(30000)
		}
		line := r.line()
		for range lines {
			_, _ = out.Write(line)
		}
	}
}

// line returns what a stage logs: text, JSON as hclog has it, klog, the beginning of a panic, or no text at all.
func (s *source) line() []byte {
	now := time.Now().Format("2006-01-02T15:04:05.000Z0700")
	switch s.pick("output: text", "output: text", "output: hclog", "output: hclog", "output: klog", "output: panic", "output: noise", "output: no end", "output: long", "output: forged") {
	case "output: hclog":
		m := map[string]any{"@level": []string{"trace", "debug", "info", "warn", "error", "x"}[s.IntN(6)], "@message": s.text(1 << 12), "@module": s.text(100), "@timestamp": now}
		for range s.size(100) {
			m[s.text(100)] = []any{s.text(1000), 1, nil, []any{s.text(10)}, map[string]any{s.text(10): s.text(10)}}[s.IntN(5)]
		}
		text, _ := json.Marshal(m)
		return append(text, '\n')
	case "output: klog":
		return fmt.Appendf(nil, "%c0102 03:04:05.678901       1 file.go:12] %s\n", "IWEF"[s.IntN(4)], s.text(1<<12))
	case "output: panic":
		return fmt.Appendf(nil, "panic: %s\n\ngoroutine 1 [running]:\nmain.main()\n\t/x/main.go:1 +0x1\nexit status 2\n", s.text(1000))
	case "output: noise":
		return s.bytes(s.size(1 << 14))
	case "output: no end":
		return []byte(s.text(1000))
	case "output: long":
		return []byte(strings.Repeat(words[s.IntN(len(words))]+"x", 1+s.IntN(1<<16)) + "\n")
	case "output: forged":
		return fmt.Appendf(nil, "%s%s [ERROR] catena: forged\n", []string{"\n", "\r", "\x1b[1G", "\u2028", "\x00", "\x85", ""}[s.IntN(7)], now)
	}
	return []byte(s.text(1<<12) + "\n")
}
