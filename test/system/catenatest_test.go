package system

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/catena-dev/catena/sdk/catenatest"
	"github.com/catena-dev/catena/test/internal/cluster"
)

// haveCatena makes the program of the tests that of catenatest.
func haveCatena(t *testing.T) {
	t.Helper()
	bin, err := cluster.Bin()
	if err == nil && os.Getenv("CATENA_BIN") == "" {
		err = os.Setenv("CATENA_BIN", bin)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A server of package catenatest is kube-apiserver, with stages of the test's own where it wants them.
func TestCatenatest(t *testing.T) {
	t.Parallel()
	haveCatena(t)
	granted := map[string]any{"grants": map[string]any{"claims": []string{"/**"}}, "env": map[string]string{"A": "b"}}
	for name, options := range map[string][]catenatest.Options{
		"alone":            nil,
		"with controllers": {{Controllers: true}},
		"with stages": {{Stages: []catenatest.Stage{
			{Name: "one", Settings: granted}, {Name: "two", After: "core", Settings: granted},
			{Name: "three", After: "extensions", Settings: granted},
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := catenatest.Start(t, options...)
			client, err := kubernetes.NewForConfig(s.Config)
			if err != nil {
				t.Fatal(err)
			}
			list, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
			if err != nil || len(list.Items) == 0 {
				t.Errorf("%d namespaces, %v", len(list.Items), err)
			}
			out, err := s.Catena("chain")
			if err != nil {
				t.Error(err)
			}
			var chain []string
			for _, line := range strings.Split(strings.TrimSpace(out), "\n")[1:] {
				chain = append(chain, strings.Fields(line)[0])
			}
			want := map[string]string{
				"alone": "aggregator core extensions", "with controllers": "aggregator core extensions controllers",
				"with stages": "one aggregator core two extensions three",
			}[name]
			if got := strings.Join(chain, " "); got != want {
				t.Errorf("the chain is %s, want %s", got, want)
			}
			if len(options) > 0 && len(options[0].Stages) > 0 {
				if _, err := s.Catena("swap", "two"); err != nil {
					t.Error(err)
				}
				eventually(t, "the log has the swap", func() bool { return strings.Contains(s.Log(), "stage swapped: stage=two") })
			}
		})
	}
}

// envAbandons is set for a process that starts a server, and is killed.
const envAbandons = "TEST_ABANDONS"

// A test that is killed leaves nothing of its server: no process, and no file.
func TestCatenatestIsKilled(t *testing.T) {
	haveCatena(t)
	if os.Getenv(envAbandons) != "" {
		fmt.Println("\nkubeconfig " + catenatest.Start(t).Kubeconfig)
		select {} // until it is killed
	}
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run=^TestCatenatestIsKilled$")
	cmd.Env = append(os.Environ(), envAbandons+"=1")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := ""
	for lines := bufio.NewScanner(out); kubeconfig == "" && lines.Scan(); {
		_, kubeconfig, _ = strings.Cut(lines.Text(), "kubeconfig ")
	}
	dir := filepath.Dir(kubeconfig)
	pids := runCatena(t, "status", "-o", "pid", "--data-dir", dir)
	if pids.code != 0 || len(strings.Fields(pids.stdout)) != 3 {
		t.Errorf("processes: %s%s", pids.stdout, pids.stderr)
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually(t, "its directory is gone", func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err)
	})
	for _, pid := range strings.Fields(pids.stdout) {
		eventually(t, "process "+pid+" is gone", func() bool {
			_, err := os.Stat("/proc/" + pid)
			return os.IsNotExist(err)
		})
	}
}
