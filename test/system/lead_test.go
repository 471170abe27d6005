package system

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/test/internal/cluster"
)

// newWorker makes a stage that works in the background: it writes into a file that all of its processes have.
func newWorker(env *sdk.Env) (http.Handler, error) {
	file, err := os.OpenFile(filepath.Join(env.DataDir(), "work"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	env.PostStartHook("work", func(ctx context.Context) error {
		go func() {
			err := env.Lead(ctx, "work", func(ctx context.Context) error {
				for ctx.Err() == nil {
					if _, err := fmt.Fprintf(file, "%s %d\n", env.Generation(), time.Now().UnixMilli()); err != nil {
						return err
					}
					time.Sleep(time.Millisecond)
				}
				return nil
			})
			if err != nil {
				env.Log.Error("the work has ended", "error", err)
			}
		}()
		return nil
	})
	return env.Next, nil
}

// turns returns the processes of the worker in the order in which they have worked, as its file says, with the time
// between one and the next.
func turns(t *testing.T, file string) (generations []string, gaps []time.Duration) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	last := int64(0)
	for line := range strings.Lines(string(text)) {
		generation, millis, _ := strings.Cut(strings.TrimSpace(line), " ")
		at, err := strconv.ParseInt(millis, 10, 64)
		if err != nil {
			continue // it is being written
		}
		if len(generations) == 0 || generations[len(generations)-1] != generation {
			generations, gaps = append(generations, generation), append(gaps, time.Duration(at-last)*time.Millisecond)
		}
		last = at
	}
	return generations, gaps
}

// What a stage does in the background is done by one process at a time: while a swap has two of them, in a canary, with
// a standby, and after a crash.
func TestLead(t *testing.T) {
	t.Parallel()
	c := catena(t, cluster.Options{
		PluginDirs: []string{plugins(t, "worker")},
		Set: []string{
			"stages.worker.delegate=aggregator", "stages.worker.lock=off", "stages.worker.standby=true",
		},
	})
	file := filepath.Join(c.DataDir(), "stages", "worker", "work")
	command := func(args ...string) {
		t.Helper()
		if out, err := c.Command(t.Context(), args...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	// serving returns the process that serves, once it works.
	serving := func() (generation string, pid int) {
		t.Helper()
		eventually(t, "the process that serves works", func() bool {
			status, err := c.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range status.Stages {
				if s.Stage == "worker" {
					generation, pid = s.Generation, s.PID
				}
			}
			worked, _ := turns(t, file)
			return pid != 0 && len(worked) > 0 && worked[len(worked)-1] == generation
		})
		return generation, pid
	}
	_, pid := serving()
	swapped := map[string]bool{}
	for i := range 4 {
		command("swap", "worker", "--probation", "500ms")
		generation, next := serving()
		swapped[generation], pid = true, next
		if i%2 == 1 {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			eventually(t, "another process works", func() bool {
				_, next = serving()
				return next != pid
			})
		}
	}
	before, _ := serving()
	command("swap", "worker", "--canary", "50%", "--for", "1h")
	if worked, _ := turns(t, file); worked[len(worked)-1] != before {
		t.Error("a canary works beside the process that serves")
	}
	command("swap", "worker", "--rollback")
	command("swap", "worker", "--canary", "50%", "--for", "1h")
	command("swap", "worker", "--promote")
	serving()
	worked, gaps := turns(t, file)
	seen := map[string]bool{}
	for i, generation := range worked {
		if seen[generation] {
			t.Fatalf("%s works again after another: %v", generation, worked[:min(len(worked), 20)])
		}
		if seen[generation] = true; swapped[generation] && gaps[i] > 2*time.Second {
			t.Errorf("nobody worked for %s when %s took over", gaps[i], generation)
		}
	}
	if len(worked) < 8 {
		t.Errorf("%v have worked, want eight processes or more", worked)
	}
}

var workerSwaps = flag.Int("worker.swaps", 2, "how often TestWorkerOfAGroup swaps the stage whose worker it watches; it kills it half as often")

// backupAudit logs what is done with the objects of examples/backup.
const backupAudit = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata, resources: [{group: backup.example.com}]}, {level: None}]
`

// The worker of an API group works on each object once, whatever happens to its stage.
func TestWorkerOfAGroup(t *testing.T) {
	t.Parallel()
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	audit := filepath.Join(t.TempDir(), "audit.log")
	c := catena(t, cluster.Options{
		PluginDirs: []string{filepath.Join(bin, "examples")},
		Flags:      map[string]string{"audit-policy-file": write(t, "policy.yaml", backupAudit), "audit-log-path": audit},
		Set: []string{
			"stages.core.delegate=backup",
			`stages.backup={"lock":"off","standby":true,"delegate":"extensions","grants":{"store":"own","network":true}}`,
		},
	})
	kubectl(t, c.Server, "apply", "-f", filepath.Join(cluster.Root(), "examples", "backup", "rbac.yaml"))
	kubectl(t, c.Server, "create", "configmap", "colors", "--from-literal=sky=blue")
	backups := dynamic.NewForConfigOrDie(c.Config(cluster.Admin)).
		Resource(schema.GroupVersionResource{Group: "backup.example.com", Version: "v1", Resource: "backups"}).Namespace("default")
	create := func(ctx context.Context, i int) error {
		_, err := backups.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "backup.example.com/v1", "kind": "Backup",
			"metadata": map[string]any{"name": fmt.Sprint("backup-", i)}, "spec": map[string]any{"configMap": "colors"},
		}}, metav1.CreateOptions{})
		return err
	}
	eventually(t, "the group takes objects", func() bool { return create(t.Context(), 0) == nil })
	made := 1
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for pace := time.NewTicker(10 * time.Millisecond); ; made++ {
			select {
			case <-stop:
				return
			case <-pace.C:
			}
			// A request under way ends with a process that is killed.
			for err := create(t.Context(), made); err != nil && !apierrors.IsAlreadyExists(err); err = create(t.Context(), made) {
				if !apierrors.IsInternalError(err) {
					t.Errorf("object %d: %v", made, err)
					return
				}
			}
		}
	})
	end := sync.OnceFunc(func() { close(stop); writer.Wait() })
	defer end()
	swap := func(args ...string) {
		t.Helper()
		if out, err := c.Command(t.Context(), append([]string{"swap", "backup"}, args...)...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for i := range *workerSwaps {
		swap("--probation", "500ms")
		if i%2 == 1 {
			if err := syscall.Kill(c.Stages()["backup"], syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	swap("--canary", "50%", "--for", "1h")
	swap("--rollback")
	swap("--canary", "50%", "--for", "1h")
	swap("--promote")
	end()
	eventually(t, "all objects have been worked on", func() bool {
		list, err := backups.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		done := 0
		for _, b := range list.Items {
			if phase, _, _ := unstructured.NestedString(b.Object, "status", "phase"); phase == "Done" {
				done++
			}
		}
		return done == made
	})
	checkOnce(t, audit, made)
}

// checkOnce looks in the audit log for objects that were worked on by two.
func checkOnce(t *testing.T, audit string, made int) {
	t.Helper()
	text, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	created, done, last, gap := map[string]time.Time{}, map[string]int{}, time.Time{}, time.Duration(0)
	for line := range strings.Lines(string(text)) {
		var e struct {
			event
			StageTimestamp time.Time
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			continue // the last one is being written
		}
		code, _ := e.ResponseStatus["code"].(float64)
		switch name := e.ObjectRef["name"]; {
		case e.Verb == "create" && code == http.StatusCreated:
			created[name] = e.StageTimestamp
		case e.Verb != "update" || e.ObjectRef["subresource"] != "status":
		case code == http.StatusConflict: // of two, the second is told so
			t.Errorf("%s: worked on by a process that had not seen what another had done", name)
		case code == http.StatusOK:
			done[name]++
			free := created[name]
			if last.After(free) {
				free = last
			}
			last, gap = e.StageTimestamp, max(gap, e.StageTimestamp.Sub(free))
		}
	}
	for name, times := range done {
		if times != 1 {
			t.Errorf("%s: worked on %d times", name, times)
		}
	}
	t.Logf("%d objects, of which %d were found done in the log; nobody worked for %s at most", made, len(done), gap)
	if len(done) < made/2 {
		t.Errorf("%d of %d objects were found done in the log", len(done), made)
	}
}
