package supervisor

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// byHand starts a stage as a developer with a debugger does, and returns its process.
func byHand(t *testing.T, name, dir string) *os.Process {
	t.Helper()
	cmd := exec.Command(os.Args[0], "--debug="+dir)
	cmd.Env = append(os.Environ(), envStage+"="+name)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if want := "catena serve --attach " + name + "=" + dir + "\n"; err != nil || !strings.HasSuffix(line, want) {
		t.Fatalf("the stage printed %q (%v), want %q at its end", line, err, want)
	}
	return cmd.Process
}

// attachTo makes stage b an attached one.
func attachTo(dir string) func(*options) {
	return func(o *options) { o.Chain[1].Attach, o.Chain[1].Binary = dir, "" }
}

func TestAttach(t *testing.T) {
	t.Parallel()
	base, err := os.MkdirTemp("", "att") // sockets need short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	dir := filepath.Join(base, "b")
	first := byHand(t, "b", dir)
	f, err := start(t, attachTo(dir))
	if err != nil {
		t.Fatal(err)
	}
	served := func(f *fixture, p *os.Process) func() bool {
		return func() bool {
			body, err := f.get("b")
			return err == nil && strings.HasPrefix(body, fmt.Sprint(p.Pid, " [c"))
		}
	}
	eventually(t, "the process that was started by hand serves", served(f, first))
	if st := f.Status()[1]; !st.Attached || st.PID != first.Pid || st.State != "serving" {
		t.Errorf("status %+v", st)
	}
	if _, err := f.Swap(t.Context(), "b", SwapOptions{}); err == nil || !strings.Contains(err.Error(), "started by hand") {
		t.Errorf("swap: %v", err)
	}

	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Wait(); err != nil {
		t.Fatal(err)
	}
	second := byHand(t, "b", dir)
	eventually(t, "the host attaches to the next process", served(f, second))
	eventually(t, "the next process is the stage", func() bool { return f.Status()[1].PID == second.Pid })

	// The end of a host is not that of the process: the next host can have it.
	if err := f.Stop(); err != nil {
		t.Error(err)
	}
	again, err := start(t, attachTo(dir))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the same process serves the next host", served(again, second))
}

// Two hosts cannot have the same process.
func TestAttachOnce(t *testing.T) {
	t.Parallel()
	base, err := os.MkdirTemp("", "att")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	dir := filepath.Join(base, "b")
	p := byHand(t, "b", dir)
	f, err := start(t, attachTo(dir))
	if err != nil {
		t.Fatal(err)
	}
	var log syncBuffer
	_, err = start(t, func(o *options) {
		attachTo(dir)(o)
		o.Chain[1].StartTimeout = 2 * time.Second
		o.Log = hclog.New(&hclog.LoggerOptions{Output: &log})
	})
	// The time can be over in the middle of a try.
	if err == nil || !strings.Contains(err.Error()+log.String(), "may have another host") {
		t.Errorf("the second host: %v; log: %s", err, log.String())
	}
	if body, err := f.get("b"); err != nil || !strings.HasPrefix(body, fmt.Sprint(p.Pid)) {
		t.Errorf("the first host: %q, %v", body, err)
	}
}
