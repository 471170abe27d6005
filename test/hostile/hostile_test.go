package hostile

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/test/internal/cluster"
)

const patience = 2 * time.Minute

// ordinary is a user of the machine without an account, and not one of the stages'.
const ordinary = 65533

// column is one way to run the stages.
type column struct {
	isolation string
	user      bool // an ordinary user runs the host, not root
	machine   machine
}

// columns are those of the first table, from left to right: the machine has all means.
func columns() []column {
	return []column{{"off", false, whole}, {"auto", false, whole}, {"auto", true, whole}, {"required", false, whole}, {"required", true, whole}}
}

// machineColumns are those of the second table: the machine lacks some.
func machineColumns() []column {
	var all []column
	for _, m := range []machine{container, noLandlock, oldLandlock, oldContainer} {
		all = append(all, column{"auto", false, m}, column{"auto", true, m})
	}
	return all
}

func (c column) String() string {
	name := c.isolation
	if c.machine != whole {
		name = string(c.machine)
	}
	if c.user {
		name += "-user"
	}
	return name
}

// uid is the user that runs the host: this one, if it is not root.
func (c column) uid(t *testing.T) int {
	t.Helper()
	switch {
	case os.Geteuid() == 0 && c.user:
		return ordinary
	case os.Geteuid() != 0 && !c.user:
		t.Skip("only root can run it as root")
	}
	return os.Geteuid()
}

// got is what a stage got, by attempt.
type got map[string]string

// The stages that are hostile, by the path that they serve.
const (
	inGo     = "hostile"
	inPython = "hostile-python"
)

// run is a server with the hostile stages upstream of Kubernetes'.
type run struct {
	*cluster.Catena
	site *site
	// names are those of the hostile stages.
	names     []string
	isolation string
	ended     bool
}

// limit is the memory that a hostile stage may use, in MiB.
const limit = 384

func start(t *testing.T, uid int, isolation, grants string, m machine) (*run, error) {
	t.Helper()
	r := &run{site: newSite(t, uid, m), names: []string{inGo}, isolation: isolation}
	stage := func(delegate string) string {
		return fmt.Sprintf(`{"lock":"off","delegate":%q,"isolation":%q,"grants":%s,"limits":{"memory":"%dMi"}}`, delegate, isolation, grants, limit)
	}
	o := cluster.Options{
		ConfigFile: filepath.Join(r.site.config, "catena.yaml"), Bin: r.site.bin,
		PluginDirs: []string{filepath.Join(r.site.dir, "go")}, Set: []string{"log.stageLevel=info"}, OpenFiles: 4096,
	}
	if uid != os.Geteuid() {
		o.UID = uid
	}
	// Without namespaces, the user of a stage has to pass through the directories above the data directory.
	o.Prepare = func(c *cluster.Catena) error { return os.Chmod(filepath.Dir(c.DataDir()), 0o755) }
	next := "aggregator"
	if r.site.python {
		r.names = append(r.names, inPython)
		o.PluginDirs = append(o.PluginDirs, filepath.Join(r.site.dir, "python"))
		o.Set = append(o.Set, "stages."+inPython+"="+stage(next))
		next = inPython
	}
	o.Set = append(o.Set, "stages."+inGo+"="+stage(next))
	var err error
	if r.Catena, err = cluster.StartCatena(t.Context(), o); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := r.Stop(t.Failed()); err != nil && !r.ended {
			t.Error(err)
		}
	})
	return r, nil
}

// TestHostile shows what stages without grants get, in each column of the table: of what the host
// prevents, nothing, however the stage is isolated; of what the kernel prevents, nothing if it is isolated.
func TestHostile(t *testing.T) {
	table := newTable(t, columns(), rows())
	for _, c := range columns() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			r, err := start(t, c.uid(t), c.isolation, "{}", whole)
			if err != nil && c.isolation == "required" {
				t.Skipf("this machine lacks a means: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			complete := r.isolatedByAll(t)
			for name, got := range r.tryAll(t) {
				table.add(c, name, got)
				check(t, c, complete, name, got)
			}
			if c.isolation == "off" || complete {
				table.compare(t, c)
			} else {
				t.Log("this machine lacks a means: what the stages got is not compared with docs/security.md")
			}
		})
	}
}

// tellsWhatIsolates checks that status and metrics say whether the stages are isolated.
func (r *run) tellsWhatIsolates(t *testing.T) {
	t.Helper()
	isolated := r.isolation != "off"
	status, err := r.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, metrics, err := send(t.Context(), r.Config(cluster.Admin), http.MethodGet, "/metrics", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range status.Stages {
		if !slices.Contains(r.names, s.Stage) {
			continue
		}
		measured := strings.Contains(metrics, fmt.Sprintf("catena_stage_isolated{means=\"mnt\",stage=%q} 1\n", s.Stage))
		if slices.Contains(s.Isolation, "mnt") != isolated || measured != isolated { // with a namespace for files come all others
			t.Errorf("%s, isolated %t: by %q, in the metrics %t", s.Stage, isolated, s.Isolation, measured)
		}
	}
}

// TestHostileOnOtherMachines shows what a stage gets that is isolated by the means of machines which lack some.
func TestHostileOnOtherMachines(t *testing.T) {
	table := newTable(t, machineColumns(), machineRows())
	for _, c := range machineColumns() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			if runtime.GOARCH != "amd64" || os.Geteuid() != 0 {
				t.Skip("the test makes such machines as root, of amd64")
			}
			r, err := start(t, c.uid(t), c.isolation, "{}", c.machine)
			if err != nil {
				t.Fatal(err)
			}
			partial := c.machine != oldLandlock // with namespaces, the first version is enough
			if r.isolatedByAll(t) == partial {
				t.Errorf("the log says that isolation is partial: %t", !partial)
			}
			status, err := r.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range status.Stages {
				if s.Stage == inGo && (len(s.IsolationLacks) > 0) != partial {
					t.Errorf("missing in the status: %q", s.IsolationLacks)
				}
			}
			got := r.attack(t, inGo)
			got[outliving] = r.outlive(t)[inGo]
			table.add(c, inGo, got)
			table.compare(t, c)
		})
	}
}

// check fails if a stage got what it must not get in that column.
func check(t *testing.T, c column, whole bool, name string, got got) {
	t.Helper()
	if want := slices.Sorted(slices.Values(rows())); !slices.Equal(slices.Sorted(maps.Keys(got)), want) {
		t.Errorf("%s tried %q, want %q", name, slices.Sorted(maps.Keys(got)), want)
	}
	for _, row := range rows() {
		if got[row] != "" && (byHost(row) || c.isolation != "off" && whole) {
			t.Errorf("%s: %s: %s", name, row, got[row])
		}
	}
}

// tryAll has each of the stages try everything. The host does not live to see the end.
func (r *run) tryAll(t *testing.T) map[string]got {
	t.Helper()
	all := map[string]got{}
	for _, name := range r.names {
		all[name] = r.attack(t, name)
		for _, do := range harm {
			do(r, t, name, all[name])
		}
	}
	if r.isolatedByAll(t) { // after swaps and restarts
		r.tellsWhatIsolates(t)
	}
	for name, result := range r.outlive(t) {
		all[name][outliving] = result
	}
	return all
}

// TestGranted shows that the attempts are real: what is granted succeeds, as far as the user in
// whose name it is done may do it.
func TestGranted(t *testing.T) {
	t.Parallel()
	r, err := start(t, os.Geteuid(), "off", `{"rewrite":true,"delegates":true}`, whole)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range r.names {
		got := r.attack(t, name)
		for attempt, want := range map[string]bool{
			"secrets through the request of a user who may read them": true,
			"secrets through a delegate":                              false, // as the stage's own user, who may not
			"secrets with its own client":                             false,
		} {
			if (got[attempt] != "") != want {
				t.Errorf("%s: %s: %q", name, attempt, got[attempt])
			}
		}
	}
}

// eventually waits until f reports true.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	if !within(patience, patience/5000, f) {
		t.Fatalf("not within %s: %s", patience, what)
	}
}

// within reports whether f, which is called once an interval, becomes true in that time.
func within(d, interval time.Duration, f func() bool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for !f() {
		select {
		case <-ctx.Done():
			return f()
		case <-tick.C:
		}
	}
	return true
}
