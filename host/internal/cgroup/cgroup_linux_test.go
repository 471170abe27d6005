package cgroup

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary is also the processes in groups: this variable says what they do.
const envMode = "CGROUP_TEST_MODE"

const patience = 20 * time.Second

func TestMain(m *testing.M) {
	switch os.Getenv(envMode) {
	case "":
		os.Exit(m.Run())
	case "sleep":
		time.Sleep(time.Hour)
	case "daemon":
		daemon()
	case "host":
		playHost()
	case "memory":
		hold()
	case "burn":
		for n := uint64(1); n > 0; n++ { // without end, in practice
		}
	case "fork":
		fork()
	}
}

// daemon starts a process that a signal to its own, or to its group of processes, does not reach.
func daemon() {
	cmd := command("sleep")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(cmd.Process.Pid)
	time.Sleep(time.Hour)
}

// hold uses memory without end.
func hold() {
	var all [][]byte
	for {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		all = append(all, b)
		if len(all) > 1<<10 {
			fmt.Println("holds 1 GiB")
			time.Sleep(time.Hour)
		}
	}
}

// fork starts processes until it cannot.
func fork() {
	for n := range 200 {
		if err := command("sleep").Start(); err != nil {
			fmt.Println(n)
			return
		}
	}
	fmt.Println("no limit")
}

func command(mode string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envMode+"="+mode)
	return cmd
}

// order is what a process is told that plays a host.
type order struct {
	Name        string
	Controllers []string
	// Empty says that it makes no group.
	Empty bool
	// Close says that it closes its tree before it reports.
	Close bool
}

// report is what it has seen.
type report struct {
	Err, Lacks string
	Before     string // its cgroup
	During     string
	After      string
	Files      []string // of a group
	PIDs       []int    // in the group
	Problems   []string
}

// playHost opens a tree with one group, and a daemon in that.
func playHost() {
	var o order
	var r report
	problem := func(err error) {
		if err != nil {
			r.Problems = append(r.Problems, err.Error())
		}
	}
	problem(json.NewDecoder(os.Stdin).Decode(&o))
	var err error
	r.Before, err = own()
	problem(err)
	tree := open(o.Name, o.Controllers)
	if err := tree.Err(); err != nil {
		r.Err = err.Error()
	} else {
		if len(o.Controllers) > 0 && tree.lacks[o.Controllers[0]] != nil {
			r.Lacks = tree.lacks[o.Controllers[0]].Error()
		}
	}
	if tree.Err() == nil && !o.Empty {
		g, err := tree.New("stage-1", Limits{})
		problem(err)
		_, _, pids, err := start(g, "daemon")
		problem(err)
		r.PIDs = pids
		entries, err := os.ReadDir(g.dir)
		problem(err)
		for _, e := range entries {
			r.Files = append(r.Files, e.Name())
		}
	}
	r.During, err = own()
	problem(err)
	if o.Close {
		problem(tree.Close())
	}
	r.After, err = own()
	problem(err)
	_ = json.NewEncoder(os.Stdout).Encode(r)
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// start starts a process in a group. Of a daemon, it returns both processes.
func start(g *Group, mode string) (*exec.Cmd, *bufio.Reader, []int, error) {
	fd, err := g.Open()
	if err != nil {
		return nil, nil, nil, err
	}
	defer fd.Close()
	cmd := command(mode)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(fd.Fd()), Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, nil, err
	}
	lines, pids := bufio.NewReader(out), []int{cmd.Process.Pid}
	if mode == "daemon" {
		line, _ := lines.ReadString('\n')
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return nil, nil, nil, fmt.Errorf("the daemon prints %q", line)
		}
		pids = append(pids, pid)
	}
	return cmd, lines, pids, nil
}

func alive(pid int) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(data), ") Z ")
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// name is that of the tree of one test.
func name(t *testing.T) string {
	t.Helper()
	name, err := Name(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// opened returns a tree, which needs a cgroup that is delegated.
func opened(t *testing.T) *Tree {
	t.Helper()
	tree := Open(name(t))
	if err := tree.Err(); err != nil {
		t.Skip("no cgroup v2 is delegated here: ", err)
	}
	t.Cleanup(func() {
		if err := tree.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(tree.dir); err == nil {
			t.Errorf("%s is left", tree.dir)
		}
	})
	return tree
}

// area returns a group that is the whole delegated part of a host that a test starts.
func area(t *testing.T) string {
	t.Helper()
	parent, err := own()
	if err != nil {
		t.Skip("no cgroup v2 is delegated here: ", err)
	}
	dir := filepath.Join(parent, "test-"+name(t))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip("no cgroup v2 is delegated here: ", err)
	}
	t.Cleanup(func() {
		if err := end(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// run starts a host in a group, as a user, and returns its report and its end by SIGKILL.
func run(t *testing.T, dir string, o order, uid int) (report, func()) {
	t.Helper()
	fd, err := (&Group{dir: dir}).Open()
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	cmd := command("host")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(fd.Fd())}
	if uid != os.Geteuid() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
		cmd.Path = readable(t)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	if err := json.NewEncoder(in).Encode(o); err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.NewDecoder(out).Decode(&r); err != nil {
		t.Fatal(err)
	}
	if len(r.Problems) > 0 {
		t.Fatalf("the host has problems: %q", r.Problems)
	}
	return r, kill
}

// readable returns a copy of the test binary that other users can execute.
func readable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "catena")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "host")
	// Not by this process, of which another test may fork a child with the file open: it is busy then.
	if out, err := exec.Command("cp", self, path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// What is in a group ends with it, and what is in another does not.
func TestKill(t *testing.T) {
	t.Parallel()
	tree := opened(t)
	var groups []*Group
	var pids [][]int
	for _, name := range []string{"a-1", "a-2"} {
		g, err := tree.New(name, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		_, _, all, err := start(g, "daemon")
		if err != nil {
			t.Fatal(err)
		}
		groups, pids = append(groups, g), append(pids, all)
	}
	if err := groups[0].Kill(); err != nil {
		t.Fatal(err)
	}
	if err := groups[0].Remove(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids[0] {
		if alive(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
	if _, err := os.Stat(groups[0].dir); err == nil {
		t.Errorf("%s is left", groups[0].dir)
	}
	for _, err := range []error{groups[0].Kill(), groups[0].Remove()} {
		if err != nil {
			t.Errorf("a group that was removed: %v", err)
		}
	}
	for _, pid := range pids[1] {
		if !alive(pid) {
			t.Errorf("process %d of another group has ended", pid)
		}
	}
}

// A tree that is closed leaves no process.
func TestClose(t *testing.T) {
	t.Parallel()
	var pids []int
	t.Run("open", func(t *testing.T) {
		g, err := opened(t).New("a-1", Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, pids, err = start(g, "daemon"); err != nil {
			t.Fatal(err)
		}
	})
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
}

// A host that starts ends what is left of one of the same name that was killed, whether it
// opens a tree or not.
func TestLeftBehind(t *testing.T) {
	t.Parallel()
	for what, again := range map[string]func(t *testing.T, dir string, o order){
		"Open": func(t *testing.T, dir string, o order) {
			if r, _ := run(t, dir, o, os.Geteuid()); r.Err != "" {
				t.Error(r.Err)
			}
		},
		"Clean": func(t *testing.T, dir string, o order) {
			// As Clean, which looks below the cgroup of this process.
			if err := end(filepath.Join(dir, o.Name)); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir, o := area(t), order{Name: name(t)}
			r, kill := run(t, dir, o, os.Geteuid())
			kill()
			daemon := r.PIDs[1]
			if !alive(daemon) {
				t.Fatal("the daemon has ended with its host: this test shows nothing")
			}
			other, _ := run(t, dir, order{Name: name(t)}, os.Geteuid())
			if !alive(daemon) {
				t.Error("a host of another name has ended it")
			}
			again(t, dir, o)
			eventually(t, "the daemon ends", func() bool { return !alive(daemon) })
			if !alive(other.PIDs[1]) {
				t.Error("the process of another host has ended")
			}
		})
	}
}

// The empty tree of a host that was killed is removed by the next host of any name, and not while it runs.
func TestSweep(t *testing.T) {
	t.Parallel()
	dir, o := area(t), order{Name: name(t), Empty: true}
	tree := filepath.Join(dir, o.Name)
	_, kill := run(t, dir, o, os.Geteuid())
	_, killOther := run(t, dir, order{Name: name(t)}, os.Geteuid())
	if _, err := os.Stat(tree); err != nil {
		t.Error(err)
	}
	kill()
	killOther() // its tree has a daemon
	last, _ := run(t, dir, order{Name: name(t), Empty: true}, os.Geteuid())
	if _, err := os.Stat(tree); err == nil {
		t.Error("the tree is left")
	}
	if last.Err != "" {
		t.Error(last.Err)
	}
	if trees, _ := filepath.Glob(filepath.Join(dir, prefix+"*")); len(trees) != 2 {
		t.Errorf("trees are %q, want those of a host that runs and of one that has left a process", trees)
	}
}

// A limit that cannot be set leaves no group behind.
func TestNewFails(t *testing.T) {
	t.Parallel()
	tree := opened(t)
	if tree.lack(PIDs) == nil {
		t.Skip("the controller pids is here")
	}
	delete(tree.lacks, PIDs) // there seems to be one
	if _, err := tree.New("a-1", Limits{PIDs: 100}); err == nil || !strings.HasPrefix(err.Error(), "limit of pids: ") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(filepath.Join(tree.dir, "a-1")); err == nil {
		t.Error("the group is left")
	}
}

// The cgroup of a unit of systemd is left alone unless systemd has marked it.
func TestManaged(t *testing.T) {
	t.Parallel()
	dir := area(t)
	if os.Geteuid() != 0 || managed(dir) {
		t.Skip("root has to be there, outside of systemd's units")
	}
	unit := filepath.Join(dir, "x.service")
	if err := os.Mkdir(unit, 0o755); err != nil {
		t.Fatal(err)
	}
	if !managed(unit) {
		t.Error("a unit is not systemd's")
	}
	if err := unix.Setxattr(unit, "trusted.delegate", []byte("1"), 0); err != nil {
		t.Skip("the file system has no attributes: ", err)
	}
	if managed(unit) {
		t.Error("a unit that is delegated is systemd's")
	}
}

func TestCleanFindsNothing(t *testing.T) {
	t.Parallel()
	if err := Clean(name(t)); err != nil {
		t.Error(err)
	}
}

// spare is a controller of cgroup v2 that the machine has, whatever it is.
func spare(t *testing.T, dir string) string {
	t.Helper()
	parent := filepath.Dir(dir)
	text, _ := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
	for _, c := range []string{Memory, PIDs, CPU, "hugetlb", "io"} {
		if !slices.Contains(strings.Fields(string(text)), c) {
			continue
		}
		if on, _ := has(parent, "cgroup.subtree_control", c); on {
			return c
		}
		if err := write(parent, file{name: "cgroup.subtree_control", text: "+" + c}); err == nil {
			t.Cleanup(func() {
				_ = end(dir)
				_ = write(parent, file{name: "cgroup.subtree_control", text: "-" + c})
			})
			return c
		}
	}
	t.Skip("no cgroup v2 controller is delegated here")
	return ""
}

// A host that is alone in its cgroup makes room for controllers, and gives it back.
func TestRoom(t *testing.T) {
	t.Parallel()
	dir := area(t)
	c := spare(t, dir)
	o := order{Name: name(t), Controllers: []string{c, "none"}}
	groupFile := func(r report) bool {
		return slices.ContainsFunc(r.Files, func(f string) bool { return strings.HasPrefix(f, c+".") })
	}

	t.Run("alone", func(t *testing.T) {
		r, kill := run(t, dir, o, os.Geteuid())
		defer kill()
		if r.Err != "" || r.Lacks != "" || !groupFile(r) {
			t.Errorf("error %q, lacks %q, the group has %q", r.Err, r.Lacks, r.Files)
		}
		if want := filepath.Join(dir, o.Name, leafName); r.Before != dir || r.During != want {
			t.Errorf("the host was in %s, and is in %s; want %s and %s", r.Before, r.During, dir, want)
		}
	})
	if err := end(filepath.Join(dir, o.Name)); err != nil {
		t.Fatal(err)
	}
	if err := write(dir, file{name: "cgroup.subtree_control", text: "-" + c}); err != nil {
		t.Fatal(err)
	}

	t.Run("closed", func(t *testing.T) {
		o := o
		o.Close = true
		r, kill := run(t, dir, o, os.Geteuid())
		defer kill()
		on, err := has(dir, "cgroup.subtree_control", c)
		if r.During == r.Before || r.After != r.Before || on || err != nil {
			t.Errorf("the host was in %s, is in %s; the controller is enabled: %t (%v)", r.During, r.After, on, err)
		}
		if _, err := os.Stat(filepath.Join(dir, o.Name)); err == nil {
			t.Error("the tree is left")
		}
	})

	t.Run("with others", func(t *testing.T) {
		other, _, _, err := start(&Group{dir: dir}, "sleep")
		if err != nil {
			t.Fatal(err)
		}
		defer other.Wait()
		defer other.Process.Kill()
		r, kill := run(t, dir, o, os.Geteuid())
		defer kill()
		if want := fmt.Sprintf("there are other processes in the cgroup %s (process %d)", dir, other.Process.Pid); r.Err != "" || !strings.Contains(r.Lacks, want) {
			t.Errorf("error %q, lacks %q, want %q", r.Err, r.Lacks, want)
		}
		if r.During != dir || groupFile(r) || len(r.PIDs) != 2 {
			t.Errorf("the host is in %s, its group has %q and %d processes", r.During, r.Files, len(r.PIDs))
		}
	})
}

// ordinary is a user of the machine who is not root.
const ordinary = 65533

// An ordinary user has groups where they are delegated, and a reason elsewhere.
func TestOrdinaryUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	dir := area(t)
	t.Run("not delegated", func(t *testing.T) {
		r, kill := run(t, dir, order{Name: name(t)}, ordinary)
		defer kill()
		if !strings.Contains(r.Err, "not delegated to its user") || !strings.Contains(r.Err, dir) {
			t.Errorf("error %q", r.Err)
		}
	})
	for _, f := range []string{"", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"} {
		if err := os.Chown(filepath.Join(dir, f), ordinary, ordinary); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("delegated", func(t *testing.T) {
		r, kill := run(t, dir, order{Name: name(t), Controllers: []string{"none"}}, ordinary)
		kill()
		if r.Err != "" || len(r.PIDs) != 2 {
			t.Fatalf("error %q, processes %v", r.Err, r.PIDs)
		}
		if want := "no cgroup v2 controller none is delegated to " + dir + "; set Delegate=yes"; !strings.Contains(r.Lacks, want) {
			t.Errorf("lacks %q, want %q", r.Lacks, want)
		}
	})
}

// Without a tree there are no groups, and all limits lack.
func TestNil(t *testing.T) {
	t.Parallel()
	var tree *Tree
	if _, err := tree.New("x", Limits{}); err == nil || tree.Close() != nil {
		t.Error("the nil tree makes groups")
	}
	lacks := tree.Lacks(Limits{Memory: 1, PIDs: 1})
	if len(lacks) != 2 || lacks[0].Limit != Memory || lacks[1].Limit != PIDs {
		t.Errorf("lacks %v", lacks)
	}
	var g *Group
	if g.Kill() != nil || g.Remove() != nil || g.Reached() != (Reached{}) {
		t.Error("the nil group does something")
	}
}

// limited returns a group, unless the controller of its limits is missing here.
func limited(t *testing.T, l Limits) *Group {
	t.Helper()
	tree := opened(t)
	for _, lack := range tree.Lacks(l) {
		t.Skipf("no cgroup v2 controller %s is delegated here: %v", lack.Limit, lack.Err)
	}
	g, err := tree.New("limited", l)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// The kernel ends a group that comes to its limit of memory, as a whole.
func TestMemory(t *testing.T) {
	t.Parallel()
	g := limited(t, Limits{Memory: 128 << 20})
	_, _, pids, err := start(g, "daemon")
	if err != nil {
		t.Fatal(err)
	}
	cmd, lines, _, err := start(g, "memory")
	if err != nil {
		t.Fatal(err)
	}
	if line, _ := lines.ReadString('\n'); line != "" {
		t.Errorf("it %s", line)
	}
	_ = cmd.Wait()
	if g.Reached().Memory == 0 {
		t.Error("the group has not come to its limit")
	}
	for _, pid := range pids {
		eventually(t, "the others end", func() bool { return !alive(pid) })
	}
}

func TestPIDs(t *testing.T) {
	t.Parallel()
	g := limited(t, Limits{PIDs: 64})
	cmd, lines, _, err := start(g, "fork")
	if err != nil {
		t.Fatal(err)
	}
	line, _ := lines.ReadString('\n')
	if n, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && n >= 64 { // or its runtime has come to the limit
		t.Errorf("it has started %d processes", n)
	}
	_ = g.Kill()
	_ = cmd.Wait()
	if g.Reached().PIDs == 0 {
		t.Error("the group has not come to its limit")
	}
}

func TestCPU(t *testing.T) {
	t.Parallel()
	g := limited(t, Limits{CPU: 100})
	cmd, _, _, err := start(g, "burn")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the group waits", func() bool { return g.Reached().CPU >= 5 })
	_ = g.Kill()
	_ = cmd.Wait()
	ran := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if ran > 5*time.Second {
		t.Errorf("it used %s in a few periods of 10 ms each", ran)
	}
}

// Each directory has a name of its own, which does not depend on its path.
func TestName(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	a, b, link := filepath.Join(base, "a"), filepath.Join(base, "b"), filepath.Join(base, "link")
	for _, dir := range []string{a, b} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(a, link); err != nil {
		t.Fatal(err)
	}
	of := func(dir string) string {
		name, err := Name(dir)
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	if of(a) == of(b) || of(a) != of(link) {
		t.Errorf("names %s, %s, %s", of(a), of(b), of(link))
	}
	if _, err := Name(filepath.Join(base, "none")); !os.IsNotExist(err) {
		t.Errorf("a directory that does not exist: %v", err)
	}
}
