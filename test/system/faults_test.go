package system

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// What is wrong stands on top of the status, and of the page, once and not by its symptoms, and the exit code says so, until it is over.
func TestFaultsStandFirst(t *testing.T) {
	t.Parallel()
	etcd := startExternalEtcd(t)
	c := catena(t, cluster.Options{Set: []string{"store.endpoints=" + etcd.url}})
	status := func() run { return runCatena(t, "status", "--data-dir", c.DataDir()) }
	page := func() string { return do(t, c.Config(cluster.Admin), http.MethodGet, "/debug/catena/", "").body }
	if r := status(); r.code != 0 || !strings.HasPrefix(r.stdout, "STAGE ") {
		t.Fatalf("nothing is wrong: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if err := cluster.Suspend(etcd.process.PID()); err != nil {
		t.Fatal(err)
	}
	const silent = "etcd does not respond: "
	var r run
	eventually(t, "the status begins with etcd", func() bool { r = status(); return strings.HasPrefix(r.stdout, silent) }, func() string { return r.stdout })
	first, rest, _ := strings.Cut(r.stdout, "\n")
	if r.code != 1 || !strings.Contains(first, "(for ") || !strings.HasPrefix(rest, "STAGE ") || strings.Contains(r.stderr, "Error") {
		t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	eventually(t, "the page says so", func() bool { return strings.Contains(page(), silent) }, page)
	if text := page(); strings.Contains(text, "health checks fail") {
		t.Error("the page counts symptoms")
	}
	if err := etcd.process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the status is as before", func() bool { r = status(); return r.code == 0 && strings.HasPrefix(r.stdout, "STAGE ") }, func() string { return r.stdout })
	if r := runCatena(t, "status", "-o", "json", "--data-dir", c.DataDir()); !strings.Contains(r.stdout, `"etcd-silent"`) || !strings.Contains(r.stdout, `"etcd-responds"`) {
		t.Errorf("the events do not have it, or not its end:\n%s", r.stdout)
	}
}

// A stage whose requests are refused is a fault, with the reason why it does not come up.
func TestFaultOfAStage(t *testing.T) {
	t.Parallel()
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "catena-stage-extensions")
	if err := os.Symlink(filepath.Join(bin, "plugins", "catena-stage-extensions"), binary); err != nil {
		t.Fatal(err)
	}
	c := catena(t, cluster.Options{ConfigFile: write(t, "catena.yaml",
		"apiVersion: catena.dev/v1alpha1\nkind: HostConfiguration\nholdTimeout: 1s\nstages: {extensions: {binary: "+binary+"}}\n")})
	status := func() run { return runCatena(t, "status", "--data-dir", c.DataDir()) }
	if r := status(); r.code != 0 {
		t.Fatalf("exit code %d\n%s", r.code, r.stdout)
	}
	if err := errors.Join(os.Remove(binary), cluster.WriteProgram(binary, []byte("#!/bin/sh\nexit 3\n"))); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(c.Stages()["extensions"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var r run
	eventually(t, "the status begins with the stage", func() bool {
		r = status()
		return r.code == 1 && strings.HasPrefix(r.stdout, "stage extensions is down after ")
	}, func() string { return r.stdout })
	if first, rest, _ := strings.Cut(r.stdout, "\n"); !strings.Contains(first, "failed starts: ") || !strings.Contains(first, "exited with status 3") || strings.Contains(rest, "not ready") {
		t.Errorf("the status is\n%s", r.stdout)
	}
}
