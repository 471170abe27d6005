package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/sdk/stagetest"
)

// The limits are what docs/sdk.md says that a stage costs. As the machine may be busy, the
// time to the first response is that of the quickest of five starts, and ten times as much
// is allowed.
const (
	maxLines    = 15
	maxBinary   = 20_000_000
	maxMemory   = 20_000 // kB
	maxFirst    = 10 * 150 * time.Millisecond
	figureTries = 5
)

func TestFigures(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(source, []byte("\n")); lines > maxLines {
		t.Errorf("%d lines, at most %d", lines, maxLines)
	}
	binary := stagetest.Build(t, ".", "-ldflags=-s -w").Path
	info, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > maxBinary {
		t.Errorf("%d bytes, at most %d", info.Size(), maxBinary)
	}
	var took []time.Duration
	var memory []int
	for range figureTries {
		begin := time.Now()
		stage := stagetest.StartProcess(t, exec.Command(binary), stagetest.Options{})
		stage.Get(t, "/hello")
		took = append(took, time.Since(begin))
		memory = append(memory, resident(t, stage.PID()))
		stage.Stop(t)
	}
	slices.Sort(took)
	slices.Sort(memory)
	if least := memory[0]; least > maxMemory {
		t.Errorf("%d kB resident, at most %d", least, maxMemory)
	}
	if took[0] > maxFirst {
		t.Errorf("%s from the start to the first response, at most %s: %s", took[0], maxFirst, took)
	}
	t.Logf("%.1f MB, %d kB resident, from the start to the first response %s",
		float64(info.Size())/1e6, memory[len(memory)/2], took[len(took)/2].Round(time.Millisecond))
}

// resident is the memory of a process in kB, 0 where there is no /proc.
func resident(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if errors.Is(err, fs.ErrNotExist) && runtime.GOOS != "linux" {
		return 0
	}
	var kB int
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	if _, scanErr := fmt.Sscan(rest, &kB); err != nil || scanErr != nil {
		t.Fatalf("memory of process %d: %v, %v", pid, err, scanErr)
	}
	return kB
}
