package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/sdk/stagetest"
)

// What docs/sdk.md says that a stage costs.
func TestFigures(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(source, []byte("\n")); lines > 15 {
		t.Errorf("%d lines, at most 15", lines)
	}
	binary := stagetest.Build(t, ".", "-ldflags=-s -w").Path
	info, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > 20_000_000 {
		t.Errorf("%d bytes, less than 20 MB", info.Size())
	}
	var took []time.Duration
	memory := ""
	for range 5 {
		begin := time.Now()
		stage := stagetest.StartProcess(t, exec.Command(binary), stagetest.Options{})
		stage.Get(t, "/hello")
		took = append(took, time.Since(begin))
		memory = resident(stage.PID())
		stage.Stop(t)
	}
	slices.Sort(took)
	t.Logf("%.1f MB, resident %s, from the start to the first answer %s", float64(info.Size())/1e6, memory, took[len(took)/2].Round(time.Millisecond))
}

// resident is the memory of a process, empty where there is no /proc.
func resident(pid int) string {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}
