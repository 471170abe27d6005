package hostile

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
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
}

// columns are those of the table, from left to right.
func columns() []column {
	return []column{{"off", false}, {"auto", false}, {"auto", true}, {"required", false}, {"required", true}}
}

func (c column) String() string {
	if c.user {
		return c.isolation + "-user"
	}
	return c.isolation
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
	names []string
	ended bool
}

// limit is the memory that a hostile stage may use, in MiB.
const limit = 384

func start(t *testing.T, uid int, isolation, grants string) (*run, error) {
	t.Helper()
	r := &run{site: newSite(t, uid), names: []string{inGo}}
	stage := func(delegate string) string {
		return fmt.Sprintf(`{"lock":"off","delegate":%q,"isolation":%q,"grants":%s,"limits":{"memory":"%dMi"}}`, delegate, isolation, grants, limit)
	}
	o := cluster.Options{
		ConfigFile: filepath.Join(r.site.dir, "catena.yaml"), Bin: r.site.bin,
		PluginDirs: []string{filepath.Join(r.site.dir, "go")}, Set: []string{"log.stageLevel=info"},
	}
	if uid != os.Geteuid() {
		o.UID = uid
	}
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
	table := table{}
	t.Cleanup(func() {
		if *update {
			table.write(t)
		}
	})
	var mu sync.Mutex
	for _, c := range columns() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			r, err := start(t, c.uid(t), c.isolation, "{}")
			if err != nil && c.isolation == "required" {
				t.Skipf("this machine lacks a means: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			whole := r.isolatedByAll(t)
			all := r.tryAll(t)
			mu.Lock()
			defer mu.Unlock()
			for name, got := range all {
				table.add(c, name, got)
				check(t, c, whole, name, got)
			}
			if c.isolation == "off" || whole {
				table.compare(t, c)
			} else {
				t.Log("this machine lacks a means: what the stages got is not compared with docs/security.md")
			}
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
	for name, result := range r.outlive(t) {
		all[name][outliving] = result
	}
	return all
}

// TestGranted shows that the attempts are real: what is granted succeeds, as far as the user in
// whose name it is done may do it.
func TestGranted(t *testing.T) {
	t.Parallel()
	r, err := start(t, os.Geteuid(), "off", `{"rewrite":true,"delegates":true}`)
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
