package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/datadir"
	"github.com/catena-dev/catena/host/internal/guard"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/shadow"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/host/internal/upgrade"
)

// fakeHost is a host that runs on a data directory, as far as commands can tell.
type fakeHost struct {
	admin.Diagnostics

	status  []supervisor.Status
	source  admin.Source
	reloads int
	report  *shadow.Report
	plan    *upgrade.Plan
}

func (h *fakeHost) Status() admin.Status { return admin.Status{Stages: h.status} }

func (h *fakeHost) Swap(_ context.Context, r admin.SwapRequest) (*supervisor.Swapped, error) {
	return &supervisor.Swapped{Stage: r.Stage, From: "a", To: "b", Version: "v1", Ready: time.Second}, nil
}

func (*fakeHost) Conclude(context.Context, admin.ConcludeRequest) error { return nil }

func (*fakeHost) UpgradeHost(context.Context, admin.HostUpgradeRequest) error { return nil }

func (*fakeHost) Changed(admin.Change) {}

func (h *fakeHost) PlanUpgrade(context.Context, admin.PlanRequest) (*upgrade.Plan, error) {
	return h.plan, nil
}

func (h *fakeHost) Shadow(_ context.Context, r admin.ShadowRequest) (*shadow.Summary, error) {
	return &shadow.Summary{Stage: r.Stage, Binary: r.Binary, Until: time.Unix(0, 0)}, nil
}

func (h *fakeHost) ShadowReport() (*shadow.Report, error) { return h.report, nil }

func (h *fakeHost) StopShadow() (*shadow.Report, error) { return h.report, nil }

func (h *fakeHost) Reload(context.Context) (*admin.Reload, error) {
	h.reloads++
	return &admin.Reload{Settings: []string{"log.level"}}, nil
}

func (h *fakeHost) Explain(_ context.Context, r admin.ExplainRequest) (*admin.Explanation, error) {
	return &admin.Explanation{Method: r.Method, Path: r.Path, Running: true}, nil
}

func (h *fakeHost) Source() admin.Source { return h.source }

// runOn serves a host on a data directory.
func (h *fakeHost) runOn(t *testing.T, data string) {
	t.Helper()
	runHost(t, h, data)
}

func runHost(t *testing.T, h admin.Host, data string) {
	t.Helper()
	dirs, err := datadir.Runtime("", data)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if err = process.PrepareRuntimeDir(dir, nil); err != nil {
			continue
		}
		closeSocket, err := admin.Serve(dir, h, guard.Own, log.New(io.Discard, "", 0))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = closeSocket() })
		return
	}
	t.Fatal(err)
}

func startFakeHost(t *testing.T) (h *fakeHost, data string) {
	t.Helper()
	h, data = &fakeHost{status: []supervisor.Status{
		{Stage: "front", State: "serving", PID: 4711, Generation: "g1"},
		{Stage: "core", State: "backing off", PID: 4712, Generation: "g2", NextStart: time.Now().Add(12*time.Minute + time.Second/2)},
		{Stage: "tail", State: supervisor.Down, NextStart: time.Now().Add(-time.Second)},
	}}, t.TempDir()
	h.runOn(t, data)
	return h, data
}

func TestStatusOfOneStage(t *testing.T) {
	t.Parallel()
	_, data := startFakeHost(t)
	if out, _, err := run(t, "status", "front", "-o", "pid", "--data-dir", data); err != nil || out != "4711\n" {
		t.Errorf("pid: %q, %v", out, err)
	}
	for args, want := range map[string]string{
		"fornt":       `there is no stage "fornt" (did you mean "front"?) in the chain, which is front, core, tail`,
		"core -o pid": `stage "core" has no process: it is backing off (next start in 12m`,
		"tail -o pid": `stage "tail" has no process: it is down (starting)`,
	} {
		out, _, err := run(t, append([]string{"status", "--data-dir", data}, strings.Fields(args)...)...)
		if err == nil || !strings.HasPrefix(err.Error(), want) || out != "" {
			t.Errorf("%s: %q, %v, want %s", args, out, err, want)
		}
	}
	out, _, err := run(t, "status", "tail", "front", "--data-dir", data)
	if err != nil || strings.Contains(out, "core") || strings.Index(out, "tail ") > strings.Index(out, "front ") {
		t.Errorf("two stages: %v\n%s", err, out)
	}
}

// A stage without a process shows when it gets one, and no number of a process that has ended.
func TestStatusShowsTheNextStart(t *testing.T) {
	t.Parallel()
	_, data := startFakeHost(t)
	out, _, err := run(t, "status", "--data-dir", data)
	if err != nil || !strings.Contains(out, "backing off (next start in 12m") || !strings.Contains(out, "down (starting)") ||
		!strings.Contains(out, "4711") || strings.Contains(out, "4712") || strings.Contains(out, "\x1b") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Flags that only look for the host are refused if they do not.
func TestFlagsThatDoNotFindTheHost(t *testing.T) {
	t.Parallel()
	h, data := startFakeHost(t)
	for _, args := range []string{"reload", "status", "swap front", "explain GET /api", "dev /no/such/stage", "kubeconfig --user jane"} {
		out, _, err := run(t, append(strings.Fields(args), "--data-dir", data, "--set", "log.level=warn")...)
		want := "--set log.level: has no effect: the running host has a configuration of its own"
		if err == nil || !strings.HasPrefix(err.Error(), want) || out != "" {
			t.Errorf("%s: %q, %v", args, out, err)
		}
	}
	if h.reloads > 0 {
		t.Error("the configuration was read again")
	}
	if out, _, err := run(t, "reload", "--set", "dataDir="+data); err != nil || out != "configuration applied: set log.level\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// A directory that is too deep for sockets has them elsewhere.
func TestHostOfADeepDataDirectory(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	for _, length := range []int{96, 97, 98, 107, 108, 200} {
		data := t.TempDir()
		data += "/" + strings.Repeat("d", max(1, length-len(data)-1))
		if err := os.Mkdir(data, 0o700); err != nil {
			t.Fatal(err)
		}
		(&fakeHost{}).runOn(t, data)
		for _, args := range []string{"status", "reload", "swap a", "explain GET /"} {
			if _, _, err := run(t, append(strings.Fields(args), "--data-dir", data)...); err != nil {
				t.Errorf("%d characters: %s: %v", len(data), args, err)
			}
		}
	}
}

// Without a file, the commands that read a configuration take the one of the running host.
func TestConfigurationOfTheRunningHost(t *testing.T) {
	t.Parallel()
	h, data := startFakeHost(t)
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	h.source = admin.Source{Dir: wd, Files: []string{write(t, "")}, Env: []string{"CATENA_LOG_LEVEL=warn"}, Set: []string{"stages.core.required=false", "dataDir=" + data}}
	for args, want := range map[string]string{
		"chain":                           "front  core ",
		"config validate":                 "the configuration of the running host (" + h.source.Files[0] + ") is valid\n",
		"config show":                     "CATENA_LOG_LEVEL",
		"config show --set log.level=off": "--set log.level",
		"config schema none":              "none",
		"config show -o json":             "--set stages.core.required",
	} {
		out, errOut, err := run(t, append(strings.Fields(args), "--data-dir", data)...)
		if !strings.Contains(out+errOut+errText(err), want) {
			t.Errorf("%s: %v, no %q in\n%s", args, err, want, out)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Without a configuration and a host, there is the chain that the program has.
func TestNoConfiguration(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"chain": "aggregator   core ", "config validate": "the default configuration is valid\n",
		"config show": "stages.core.binary",
	} {
		data := t.TempDir()
		out, errOut, err := run(t, append(strings.Fields(args), "--data-dir", data)...)
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%s%s", args, err, out, errOut)
		}
	}
}

// Where nothing says otherwise, the host is the service that has been installed.
func TestInstalledHost(t *testing.T) {
	service := write(t, "dataDir: /var/lib/catena\n")
	t.Setenv("CATENA_CONFIG", "")
	t.Setenv("CATENA_DATA_DIR", "")
	t.Chdir(t.TempDir())
	if err := os.Mkdir("elsewhere", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		flags   configFlags
		service string
		want    []string
	}{
		"nothing":              {configFlags{}, service, []string{service}},
		"not installed":        {configFlags{}, service + ".not", nil},
		"--data-dir":           {configFlags{dataDir: "elsewhere"}, service, nil},
		"--config":             {configFlags{files: []string{"mine.yaml"}}, service, []string{"mine.yaml"}},
		"--set dataDir":        {configFlags{set: []string{"dataDir=elsewhere"}}, service, nil},
		"--set something else": {configFlags{set: []string{"log.level=warn"}}, service, []string{service}},
	} {
		if got := c.flags.optionsBeside(c.service).Files; !slices.Equal(got, c.want) {
			t.Errorf("%s: the files are %q, want %q", name, got, c.want)
		}
	}
	var started configFlags
	if err := started.settle(service); err != nil {
		t.Fatal(err)
	}
	if got := os.Getenv("CATENA_CONFIG"); got != service {
		t.Errorf("a host that starts has the files %q", got)
	}
	if err := os.Mkdir("data", 0o700); err != nil {
		t.Fatal(err)
	}
	if got := started.optionsBeside(service).Files; !slices.Equal(got, []string{service}) {
		t.Errorf("a host that has started has the files %q", got)
	}
	t.Setenv("CATENA_CONFIG", "")
	if got := (&configFlags{}).optionsBeside(service).Files; len(got) != 0 {
		t.Errorf("beside a data directory, the files are %q", got)
	}
	t.Setenv("CATENA_DATA_DIR", "elsewhere")
	if err := os.Remove("data"); err != nil {
		t.Fatal(err)
	}
	if got := (&configFlags{}).optionsBeside(service).Files; len(got) != 0 {
		t.Errorf("with CATENA_DATA_DIR, the files are %q", got)
	}
}

func TestConfigVariable(t *testing.T) {
	first, second := write(t, ""), filepath.Join(t.TempDir(), "more.yaml")
	more := "apiVersion: catena.dev/v1alpha1\nkind: HostConfiguration\nstages: {new: {delegate: front, binary: /bin/true}}\n"
	if err := os.WriteFile(second, []byte(more), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, list := range []string{first + "," + second, first + string(os.PathListSeparator) + second} {
		t.Setenv("CATENA_CONFIG", list)
		out, _, err := run(t, "config", "show")
		if err != nil || !strings.Contains(out, second+":3") || !strings.Contains(out, first+":") {
			t.Errorf("%s: %v\n%s", list, err, out)
		}
	}
	out, _, err := run(t, "config", "show", "--config", first)
	if err != nil || strings.Contains(out, second) {
		t.Errorf("--config does not win: %v\n%s", err, out)
	}
}

func TestEverythingPrintsJSON(t *testing.T) {
	t.Parallel()
	_, data := startFakeHost(t)
	file := write(t, "  new: {delegate: front, bianry: x}\n")
	for args, want := range map[string]string{
		"reload --data-dir " + data:                `{"at":"0001-01-01T00:00:00Z","settings":["log.level"]}`,
		"swap front --data-dir " + data:            `{"stage":"front","from":"a","to":"b","version":"v1","readyNanoseconds":1000000000}`,
		"config validate --config " + file:         `{"source":"` + file + `","line":8,"key":"stages.new.bianry","message":"unknown key (did you mean \"binary\"?)"}`,
		"config validate --config " + write(t, ""): `{"valid":true,"errors":[]}`,
		"version":                                          `{"catena":"unknown","kubernetes":"v`,
		"explain GET /api --data-dir " + data:              `"path":"/api","running":true`,
		"status front --data-dir " + data:                  `"stage":"front","state":"serving"`,
		"chain --config " + write(t, "") + " --data-dir /": `[{"name":"front","delegate":"core","binary":"`,
	} {
		out, _, err := run(t, append(strings.Fields(args), "-o", "json")...)
		if code := exitCode(0); err != nil && !errors.As(err, &code) {
			t.Errorf("%s: %v", args, err)
		}
		var v json.RawMessage
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			t.Errorf("%s: %v in %s", args, err, out)
		}
		if text := compact(t, v); !strings.Contains(text, want) {
			t.Errorf("%s: no %s in %s", args, want, text)
		}
	}
}

func compact(t *testing.T, v json.RawMessage) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

// The shell offers the stages of the running host or, if none runs, of the configuration.
func TestStagesComplete(t *testing.T) {
	t.Parallel()
	_, data := startFakeHost(t)
	file := write(t, "")
	for args, want := range map[string][]string{
		"swap --data-dir " + data + " ":         {"front", "core", "tail"},
		"swap --data-dir " + data + " front ":   nil,
		"status --data-dir " + data + " front ": {"core", "tail"},
		"config schema --config " + file + " ":  {"front", "core", "tail"},
		"serve --config " + file + " --attach ": {"front", "core", "tail"},
		"status -o ":                            {"text", "json", "pid"},
		"reload --set ":                         {"dataDir=", "runtimeDir="},
		"swap a --rollback-on ":                 {"errors=5%", "health", "errors=5%,health", "errors=1%,refused=1%,latency=20%"},
		"swap a --canary 5% --by ":              {"client", "user", "namespace"},
		"explain ":                              {"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"},
		"stage new --kind ":                     {"middleware", "api"},
		"stage new ":                            nil,
	} {
		words := strings.Split(args, " ")
		out, _, err := run(t, append([]string{"__complete"}, words...)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		got := slices.DeleteFunc(lines[:len(lines)-1], func(l string) bool { return l == "" })
		if err != nil || !slices.Equal(got, want) && len(got)+len(want) > 0 {
			t.Errorf("%s: %v, %q, want %q", args, err, got, want)
		}
	}
	out, _, _ := run(t, "__complete", "serve", "--config", file, "--set", "")
	if !strings.Contains(out, "\nstages.core.delegate=\n") || !strings.Contains(out, "\napiserver.\n") || !strings.Contains(out, "\nstages.core.env.\n") {
		t.Errorf("keys: %s", out)
	}
}

func TestColours(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		env  map[string]string
		want bool
	}{
		{nil, true},
		{map[string]string{"TERM": "xterm", "CLICOLOR": "1"}, true},
		{map[string]string{"NO_COLOR": "1"}, false},
		{map[string]string{"CLICOLOR": "0"}, false},
		{map[string]string{"TERM": "dumb"}, false},
	} {
		if got := wantsColours(func(name string) string { return tc.env[name] }); got != tc.want {
			t.Errorf("%v: %t", tc.env, got)
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if coloursOf(w) || coloursOf(io.Discard) {
		t.Error("colours in a pipe")
	}
	if text := colours(true).paint(red, "down"); text != "\x1b[31mdown\x1b[0m" {
		t.Errorf("%q", text)
	}
	if text := colours(false).paint(red, "down"); text != "down" {
		t.Errorf("%q", text)
	}
}
