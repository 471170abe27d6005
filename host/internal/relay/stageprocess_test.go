package relay

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// stageEnv makes the test binary a stage that serves the socket it names.
const stageEnv = "RELAY_TEST_STAGE"

func TestMain(m *testing.M) {
	if socket := os.Getenv(stageEnv); socket != "" {
		if err := runStage(socket); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func runStage(socket string) error {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	go func() { // the parent holds the other end
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return newStageServer(context.Background(), stageHandler()).Serve(l)
}

// stageHandler is what the stage of tests and benchmarks serves, in its own
// process or in that of the test.
func stageHandler() http.Handler {
	mux := http.NewServeMux()
	filler := make([]byte, 8<<20)
	for i := range filler {
		filler[i] = 'a' + byte(i%26)
	}
	mux.HandleFunc("/size/{n}", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.PathValue("n"))
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(n))
		w.Write(filler[:n])
	})
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		io.Copy(w, r.Body)
	})
	var hanging atomic.Int64
	mux.HandleFunc("/hang", func(w http.ResponseWriter, r *http.Request) {
		hanging.Add(1)
		<-r.Context().Done()
	})
	mux.HandleFunc("/hanging", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, hanging.Load()) })
	mux.HandleFunc("/watch", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/events/{n}", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.PathValue("n"))
		pause, _ := time.ParseDuration(r.FormValue("pause"))
		for range n {
			time.Sleep(pause)
			event := append(filler[:0:0], filler[:511]...)
			copy(event, strconv.AppendInt(nil, time.Now().UnixNano(), 10))
			w.Write(append(event, '\n'))
			w.(http.Flusher).Flush()
		}
	})
	mux.HandleFunc("/forever", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			w.Write(filler[:64<<10])
		}
	})
	mux.HandleFunc("/cpu", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, int64(cpuTime())) })
	mux.HandleFunc("/memory", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, residentMemory()) })
	return mux
}

// stageProcess is a stage in a process of its own.
type stageProcess struct {
	*os.Process
	socket string
}

func startStage(t testing.TB) *stageProcess {
	t.Helper()
	return startStageAt(t, filepath.Join(t.TempDir(), "s"))
}

func startStageAt(t testing.TB, socket string) *stageProcess {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), stageEnv+"="+socket)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("stage process: %q, %v", line, err)
	}
	return &stageProcess{cmd.Process, socket}
}

// suspend stops the process, and returns when each of its threads stands still:
// until then it can respond.
func (p *stageProcess) suspend(t testing.TB) {
	t.Helper()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stage process to stand still", func() bool {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Pid))
		return !slices.ContainsFunc(threads, func(file string) bool {
			stat, err := os.ReadFile(file)
			return err == nil && !strings.Contains(string(stat), ") T ")
		})
	})
}

// ask gets a number from the stage process.
func (p *stageProcess) ask(t testing.TB, path string) int64 {
	t.Helper()
	c, err := net.Dial("unix", p.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: stage\r\nConnection: close\r\n\r\n", path)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	n, err := strconv.ParseInt(string(body), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// cpuTime is the processor time that this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// residentMemory is the memory of this process in bytes, 0 if it is not known.
func residentMemory() int64 {
	runtime.GC()
	debug.FreeOSMemory()
	statm, _ := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(statm))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}
