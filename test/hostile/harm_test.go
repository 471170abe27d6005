package hostile

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// The rows of the table that are judged from outside of the stage.
const (
	claiming   = "claims of Kubernetes' paths at run time"
	posing     = "the place of another stage"
	expired    = "the identity of a process that has ended, with its token"
	forging    = "lines of the log in the host's name"
	largeHeads = "the host's memory, by 40 heads of 16 MiB"
	crowding   = "the host's descriptors, by 20,000 connections"
	flooding   = "the sockets of others, by 64 threads that connect to its own"
	looping    = "the seats of users, by requests for what it serves by them"
	hogging    = "more memory than its limit"
	shutting   = "the next process of the stage, by shutting its socket down"
	spawning   = "stopping the host by 1,000 processes"
	staying    = "processes that outlive the stage"
	outliving  = "processes that outlive the host"
)

// hostHarms are the host's to prevent, kernelHarms the kernel's.
var (
	hostHarms = []string{posing, expired, forging, largeHeads, crowding, flooding, looping, hogging,
		shutting, spawning}
	kernelHarms = []string{staying, outliving}
)

// harm is what a stage does to others. The host, which is gone after it, is not harmed here: see outlive.
var harm = []func(r *run, t *testing.T, stage string, got got){
	(*run).pose, (*run).forge, (*run).heads, (*run).crowd, (*run).flood, (*run).loop, (*run).hog,
	(*run).shut, (*run).spawn,
}

// send makes a request as an administrator, and returns the status and the body.
func send(ctx context.Context, config *rest.Config, method, path, body string) (int, string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	transport, err := rest.TransportFor(config)
	if err != nil {
		return 0, "", err
	}
	r, err := http.NewRequestWithContext(ctx, method, config.Host+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// order has a stage do something, and returns the status and what it responds.
func (r *run) order(ctx context.Context, stage, action string, o order) (int, string, error) {
	return send(ctx, r.Config(cluster.Admin), http.MethodPost, "/"+stage+"/"+action, o.encode())
}

// must is order for what a stage always does.
func (r *run) must(t *testing.T, stage, action string, o order, into any) {
	t.Helper()
	code, body, err := r.order(t.Context(), stage, action, o)
	if err == nil && code == http.StatusOK {
		err = json.Unmarshal([]byte(body), into)
	}
	if err != nil || code != http.StatusOK {
		t.Fatalf("%s %s: %d %s, %v", stage, action, code, body, err)
	}
}

// served reports whether the host and core respond to an ordinary request, from a connection of its own.
func (r *run) served(t *testing.T) bool {
	code, body, err := send(t.Context(), r.Config(cluster.Admin), http.MethodGet, secrets, "")
	if err != nil || code != http.StatusOK || !strings.Contains(body, "SecretList") {
		t.Logf("secrets: %d %.200s, %v", code, body, err)
		return false
	}
	return true
}

// responds is what others notice of a harm: nothing, or that they are not served.
func (r *run) responds(t *testing.T) string {
	t.Helper()
	if r.served(t) {
		return ""
	}
	return "others are not served"
}

// pid is the process of a stage that serves, 0 if there is none.
func (r *run) pid(t *testing.T, stage string) int {
	t.Helper()
	status, err := r.Status(t.Context())
	if err != nil {
		t.Log(err)
		return 0
	}
	for _, s := range status.Stages {
		if s.Stage == stage && s.State == "serving" {
			return s.PID
		}
	}
	return 0
}

// settled reports whether a stage serves, and has no other process.
func (r *run) settled(t *testing.T, stage string) bool {
	t.Helper()
	status, err := r.Status(t.Context())
	if err != nil {
		t.Log(err)
		return false
	}
	for _, s := range status.Stages {
		if s.Stage == stage {
			return s.State == "serving" && len(s.Others) == 0
		}
	}
	return false
}

// attack has a stage make all attempts.
func (r *run) attack(t *testing.T, stage string) got {
	t.Helper()
	o := order{
		DataDir: r.DataDir(), Host: strings.TrimPrefix(r.URL, "https://"), HostPID: r.Process().PID(), Victim: r.pid(t, "core"),
		Secret: r.site.secret, Abstract: r.site.abstract(t), Open: r.site.open(t),
	}
	var err error
	if o.Sockets, err = filepath.Glob(filepath.Join(r.DataDir(), "run", "*.sock")); err != nil || len(o.Sockets) < 5 {
		t.Errorf("sockets: %v, %v", o.Sockets, err)
	}
	got := got{}
	r.must(t, stage, "attack", o, &got)
	// It has claimed everything by now.
	got[claiming] = r.responds(t)
	return got
}

// pose swaps a stage for a binary that describes itself as core.
func (r *run) pose(t *testing.T, stage string, got got) {
	dir := map[string]string{inGo: "posers", inPython: "python-poser"}[stage]
	out, err := r.Command(t.Context(), "swap", stage, "--binary", filepath.Join(r.site.dir, dir, "catena-stage-poser"))
	switch {
	case err == nil:
		got[posing] = "swapped: " + out
	case !strings.Contains(err.Error(), "core"):
		t.Errorf("%s: %v", posing, err)
	default:
		got[posing] = r.responds(t)
	}
}

// ownLine begins a line of the host's log that a hostile stage has written.
var ownLine = regexp.MustCompile(`^\S+ \[[A-Z]+\] +catena\.hostile(-python)?: `)

// forge has a stage write what looks like lines of the host and of core.
func (r *run) forge(t *testing.T, stage string, got got) {
	mark := fmt.Sprintf("forged-%d", rand.Int())
	now := time.Now().Format("2006-01-02T15:04:05.000Z0700")
	line := func(of, text string) string { return now + " [WARN]  " + of + ": " + mark + " " + text }
	const last = "the end of it"
	var ignored string
	r.must(t, stage, "forge", order{Lines: []string{
		line("catena", "is shutting down"), line("catena.core", "panics"),
		"before\n" + line("catena", "after a line feed") + "\n" + line("catena", "after another"), "before\r" + line("catena", "after a carriage return"),
		"before\x1b[2K\x1b[1G" + line("catena", "after an escape sequence"), "before\u2028" + line("catena", "after a separator"),
		line("catena", last),
	}}, &ignored)
	var text []byte
	eventually(t, "the log has what was written", func() bool {
		text, _ = os.ReadFile(r.Process().Log)
		return strings.Count(string(text), mark+" "+last) >= 3
	})
	result := ""
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if strings.Contains(lines.Text(), mark) && forgedLine(lines.Text()) {
			result = "wrote a line"
			t.Logf("%q", lines.Text())
		}
	}
	got[forging] = result
}

// forgedLine reports whether a reader could take a line of the log, with what a stage has written, for another's.
func forgedLine(line string) bool {
	// What belongs to the line above is indented, and marked.
	continued := strings.HasPrefix(line, "  |") || strings.HasPrefix(line, "    ")
	return !ownLine.MatchString(line) && !continued || strings.ContainsAny(line, "\r\x1b\u2028")
}

// heads has a stage respond with heads that are large and do not end.
func (r *run) heads(t *testing.T, stage string, got got) {
	const requests, size = 40, 16<<20 - 1<<17
	before := memoryOf(r.Process().PID())
	got[largeHeads] = ""
	refused := make(chan struct{}, requests)
	var pending sync.WaitGroup
	for range requests {
		pending.Go(func() {
			code, _, err := r.order(t.Context(), stage, "heads", order{Bytes: size, Seconds: 2 * patience.Seconds()})
			if err != nil || code >= http.StatusInternalServerError {
				refused <- struct{}{}
			}
		})
	}
	// Eight of them fit in the host's budget for a stage.
	if !within(patience, patience/1000, func() bool { return len(refused) >= requests-8 }) {
		got[largeHeads] = fmt.Sprintf("all but %d are taken", len(refused))
	}
	grown := memoryOf(r.Process().PID()) - before
	t.Logf("the host has %d MiB more than before", grown>>20)
	// What the collector has not come to is part of it; all of the heads would take twice their size.
	if grown > requests*size*3/2 {
		got[largeHeads] = fmt.Sprintf("filled %d MiB", grown>>20)
	}
	if others := r.responds(t); others != "" {
		got[largeHeads] = others
	}
	var ignored string
	r.must(t, stage, "release", order{}, &ignored)
	pending.Wait()
}

// shut has a stage shut down the socket that its next process inherits, and end.
func (r *run) shut(t *testing.T, stage string, got got) {
	before := r.pid(t, stage)
	_, _, _ = r.order(t.Context(), stage, "shut", order{})
	got[shutting] = "it stays down"
	if within(patience, patience/200, func() bool {
		pid := r.pid(t, stage)
		code, _, err := r.order(t.Context(), stage, "release", order{})
		return pid != 0 && pid != before && err == nil && code == http.StatusOK
	}) {
		got[shutting] = r.responds(t)
	}
}

// crowd has a stage connect to the host, with a part of a request each time, and keep the connections.
func (r *run) crowd(t *testing.T, stage string, got got) {
	var ignored string
	r.must(t, stage, "crowd", order{Count: 20_000}, &ignored)
	got[crowding] = r.responds(t)
	r.must(t, stage, "release", order{}, &ignored)
}

// flood has a stage connect to its socket all the time. The socket of another stage takes connections as ever.
func (r *run) flood(t *testing.T, stage string, got got) {
	got[flooding] = ""
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if code, body, err := r.order(t.Context(), stage, "flood", order{Count: 64, Seconds: 5}); code != http.StatusOK {
			t.Errorf("flood of %s: %d %s, %v", stage, code, body, err)
		}
	}()
	sockets, err := filepath.Glob(filepath.Join(r.DataDir(), "run", "core-*.host.sock"))
	if err != nil || len(sockets) != 1 {
		t.Errorf("the socket of core: %v, %v", sockets, err)
		<-ended
		return
	}
	socket, asked := sockets[0], 0
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	for {
		select {
		case <-ended:
			if asked == 0 {
				t.Error("nothing was asked for meanwhile")
			}
			return
		default:
		}
		resp, err := client.Get("http://host/")
		if err != nil {
			got[flooding] = err.Error()
			<-ended
			return
		}
		resp.Body.Close()
		asked++
	}
}

// loop has a stage ask for what it serves by asking for it again. Its requests have the seats of stages, and a user is served as ever.
func (r *run) loop(t *testing.T, stage string, got got) {
	const group = "/apis/rbac.authorization.k8s.io/v1"
	mayAsk := map[string]string{
		group + "/clusterroles":        `{"metadata":{"name":"loop"},"rules":[{"nonResourceURLs":["/hostile/*","/hostile-python/*"],"verbs":["get"]}]}`,
		group + "/clusterrolebindings": `{"metadata":{"name":"loop"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"loop"},"subjects":[{"kind":"Group","name":"system:catena:stages"}]}`,
	}
	for path, body := range mayAsk {
		if code, text, err := send(t.Context(), r.Config(cluster.Admin), http.MethodPost, path, body); code != http.StatusCreated && code != http.StatusConflict {
			t.Fatalf("%s: %d %s, %v", path, code, text, err)
		}
	}
	var ignored string
	r.must(t, stage, "loop", order{Count: 500, Seconds: patience.Seconds()}, &ignored)
	defer r.must(t, stage, "release", order{}, &ignored)
	got[looping] = ""
	deadline, ownSeats := time.Now().Add(patience), 0 // how often the stage had any
	for asked := 0; ownSeats < 10; asked++ {
		if time.Now().After(deadline) {
			t.Errorf("loop of %s: a user was served %d times in %s; the requests of the stage had seats of stages %d times", stage, asked, patience, ownSeats)
			return
		}
		seats := r.seats(t)
		if seats["catena-stages"] > 0 {
			ownSeats++
		}
		if n := seats["global-default"]; n > 5 {
			got[looping] = fmt.Sprintf("%d seats of users", n)
			return
		}
		if code, body, err := send(t.Context(), r.Config(cluster.Alice), http.MethodGet, "/version", ""); code != http.StatusOK {
			got[looping] = fmt.Sprintf("a user got %d %s, %v", code, body, err)
			return
		}
	}
}

// seats returns how many requests of each level of priority and fairness are being served. It is the host that responds, alone.
func (r *run) seats(t *testing.T) map[string]int {
	t.Helper()
	code, text, err := send(t.Context(), r.Config(cluster.Admin), http.MethodGet, "/debug/api_priority_and_fairness/dump_priority_levels", "")
	if err != nil || code != http.StatusOK {
		t.Fatalf("levels: %d, %v", code, err)
	}
	seats := map[string]int{}
	for line := range strings.Lines(text) {
		// PriorityLevelName, ActiveQueues, IsIdle, IsQuiescing, WaitingRequests, ExecutingRequests, …
		if fields := strings.Split(line, ","); len(fields) > 5 {
			seats[strings.TrimSpace(fields[0])], _ = strconv.Atoi(strings.TrimSpace(fields[5]))
		}
	}
	if _, ok := seats["global-default"]; !ok {
		t.Fatalf("the level of users is not among %s", text)
	}
	return seats
}

// memoryOf returns the bytes of memory that a process has to itself.
func memoryOf(pid int) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "RssAnon:" {
			kib, _ := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// hog has a stage use twice the memory of its limit. It is killed for it, and started again.
func (r *run) hog(t *testing.T, stage string, got got) {
	code, body, err := r.order(t.Context(), stage, "memory", order{Bytes: 2 * limit << 20, Seconds: 30})
	if err == nil && code == http.StatusOK {
		got[hogging] = strings.Trim(strings.TrimSpace(body), `"`)
	} else {
		got[hogging] = r.responds(t)
	}
	// The host may have begun to swap it for its memory before: the process that serves goes once more then.
	eventually(t, stage+" is started again, and no other process comes or goes", func() bool { return r.settled(t, stage) })
}

// spawn has a stage start many processes, and ends the stage.
func (r *run) spawn(t *testing.T, stage string, got got) {
	mark := newMark(t)
	var failed, token, who string
	// What has just come to its limit of memory may come to it once more.
	eventually(t, stage+" has a token", func() bool {
		code, body, err := r.order(t.Context(), stage, "token", order{})
		return err == nil && code == http.StatusOK && json.Unmarshal([]byte(body), &token) == nil
	})
	if r.must(t, stage, "use", order{Token: token}, &who); who == "" {
		t.Errorf("the token of %s is refused", stage)
	}
	for _, other := range r.names {
		if r.must(t, other, "use", order{Token: token}, &who); other != stage && who != "" {
			t.Errorf("%s is %s by the token of %s", other, who, stage)
		}
	}
	r.must(t, stage, "spawn", order{Count: 1000, Seconds: mark.String()}, &failed)
	if failed != "" {
		t.Errorf("%s cannot start processes: %s", stage, failed)
	}
	// One that has not come to its program yet is not known by its command line.
	if !within(patience, patience/1000, func() bool { return len(mark.processes()) >= 1000 }) {
		t.Errorf("%d processes of %s run", len(mark.processes()), stage)
	}
	got[spawning] = r.responds(t)
	// A swap ends the process once the new one serves.
	if err := r.Swap(t.Context(), stage); err != nil {
		t.Errorf("swap %s: %v", stage, err)
	}
	got[staying], got[expired] = mark.left(patience), ""
	if !within(patience, patience/5000, func() bool { r.must(t, stage, "use", order{Token: token}, &who); return who == "" }) {
		got[expired] = who
	}
}

// outlive has all stages leave a process, and kills the host.
func (r *run) outlive(t *testing.T) map[string]string {
	t.Helper()
	marks := map[string]mark{}
	for _, stage := range r.names {
		marks[stage] = newMark(t)
		var failed string
		r.must(t, stage, "leave", order{Seconds: marks[stage].String()}, &failed)
		eventually(t, "the process of "+stage+" runs", func() bool { return len(marks[stage].processes()) == 1 })
		if failed != "" {
			t.Fatal(failed)
		}
	}
	children := cluster.Children(r.Process().PID())
	r.ended = true
	if err := r.Process().Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-r.Process().Done
	// ended reports whether no child of the host is there any more whose name begins so.
	ended := func(name string) func() bool {
		return func() bool {
			maps.DeleteFunc(children, func(pid int, child string) bool { return strings.HasPrefix(child, name) && commandLine(pid) == "" })
			return !slices.ContainsFunc(slices.Collect(maps.Values(children)), func(child string) bool { return strings.HasPrefix(child, name) })
		}
	}
	if !within(patience, patience/1000, ended("catena")) {
		t.Errorf("stages outlive the host: %v", children)
	}
	// What ends with them is gone in a moment. What nothing ends stays, so that this time passes.
	within(5*time.Second, patience/1000, func() bool {
		return !slices.ContainsFunc(slices.Collect(maps.Values(marks)), func(m mark) bool { return len(m.processes()) > 0 })
	})
	left := map[string]string{}
	for stage, mark := range marks {
		left[stage] = mark.left(0)
	}
	if !within(patience, patience/1000, ended("")) {
		t.Errorf("outlive the host: %v", children)
	}
	return left
}

// mark is the argument by which processes of a test are found, in whatever namespace they are: a number
// of seconds to sleep.
type mark int

// newMark makes one that no other test has. When the test ends, so do its processes.
func newMark(t *testing.T) mark {
	m := mark(rand.IntN(1e9))
	t.Cleanup(func() {
		for _, pid := range m.processes() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return m
}

func (m mark) String() string { return fmt.Sprintf("300.%09d", int(m)) }

// processes returns the ids of those that run.
func (m mark) processes() []int {
	var found []int
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if commandLine(pid) == "sleep\x00"+m.String()+"\x00" {
			found = append(found, pid)
		}
	}
	return found
}

// commandLine is empty for a process that has ended.
func commandLine(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return string(text)
}

// left returns what is left after a time, and ends it.
func (m mark) left(grace time.Duration) string {
	if within(grace, patience/5000, func() bool { return len(m.processes()) == 0 }) {
		return ""
	}
	left := m.processes()
	for _, pid := range left {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return strconv.Itoa(len(left)) + " left"
}

// isolatedByAll reports whether the machine has all means to isolate the stages.
func (r *run) isolatedByAll(t *testing.T) bool {
	t.Helper()
	text, err := os.ReadFile(r.Process().Log)
	if err != nil {
		t.Fatal(err)
	}
	return !strings.Contains(string(text), "isolation is partial")
}
