//go:build linux

package stagecheck

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

func checkMode(t *testing.T, mode string, opts Options) *Report {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	opts.Binary, opts.Name, opts.Env, opts.Peer = self, "test", map[string]string{envMode: mode}, []string{self, "peer"}
	report, err := Run(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// A good stage passes everything that applies to it, in all formats of the report.
func TestGood(t *testing.T) {
	t.Parallel()
	report := checkMode(t, "good", Options{Endpoints: "/test/check", Through: "/test/through", Requests: 2000, Timeout: 2 * time.Minute})
	for _, r := range report.Results {
		if r.Status == Failed || r.Status == Skipped && r.Check != "standby" {
			t.Error(r)
		}
	}
	if len(report.Results) != len(checks()) || report.Control != "mtls" || report.Version != "v1.2.3" {
		t.Errorf("%d results, %+v", len(report.Results), report)
	}
	formats(t, report)
}

// A stage may send hints before its response.
func TestHints(t *testing.T) {
	t.Parallel()
	report := checkMode(t, "hints", Options{Requests: 4000, Timeout: time.Minute, Only: []string{"requests", "unread", "decline", "large-head"}})
	for _, r := range report.Results {
		if r.Status == Failed {
			t.Error(r)
		}
	}
}

// A stage without check endpoints passes too; what needs them is skipped.
func TestWithoutEndpoints(t *testing.T) {
	t.Parallel()
	report := checkMode(t, "good", Options{Requests: 500, Timeout: 2 * time.Minute, Skip: []string{"idle"}}) // half a minute, which TestGood waits
	skipped := map[string]bool{}
	for _, r := range report.Results {
		if r.Status == Failed {
			t.Error(r)
		}
		skipped[r.Check] = r.Status == Skipped
	}
	for _, name := range []string{"echo", "streaming", "trailers", "upgrade", "slow-reader"} {
		if !skipped[name] {
			t.Errorf("%s was not skipped", name)
		}
	}
	if skipped["cancellation"] || skipped["concurrency"] || skipped["memory"] {
		t.Errorf("skipped: %v", skipped)
	}
}

// allChecks makes all checks of each fault, and not only the one that has to find it. That takes minutes.
var allChecks = flag.Bool("stagecheck.all", false, "make all checks of each fault in TestBroken")

// Every check can fail, for the reason that it names.
func TestBroken(t *testing.T) {
	t.Parallel()
	// also are the checks that a fault cannot but fail too.
	also := map[string]string{
		"expect":         "requests decline echo large-body trailers slow-reader concurrency cancellation memory drain",
		"expect-decline": "requests decline echo large-body trailers slow-reader concurrency cancellation memory",
		"concurrency":    "cancellation slow-reader decline echo trailers drain memory",
		"closes":         "idle",
		"config-good":    "prepare",
		"control":        "prepare",
		"schema":         "prepare",
		"schema-type":    "prepare",
		"claim-hooks":    "hooks",
		"claim-path":     "watch",
		"claim-match":    "watch",
		"large-body":     "slow-reader",
		"echo":           "slow-reader",
	}
	for _, tc := range []struct{ mode, check, got string }{
		{"by-hand", "by-hand", "still runs after"},
		{"by-hand-silent", "by-hand", "no word of explanation"},
		{"by-hand-status", "by-hand", "status 3"},
		{"by-hand-crash", "by-hand", "a crash"},
		{"handshake", "handshake", `"hello"`},
		{"unflushed", "handshake", "its standard output is buffered"},
		{"padding", "handshake", "with padding; it must have none"},
		{"name", "handshake", `reports the name "other"`},
		{"describe", "describe", `version:"2"`},
		{"schema", "describe", `"{"`},
		{"schema-type", "describe", `there is no type "objekt"`},
		{"control", "control", "a response to a client with"},
		{"message-size", "message-size", "larger than max"},
		{"config", "config", "no error for " + nonsense},
		{"config-keys", "config", `no error for {"` + unknownKey},
		{"config-good", "config", "is wrong"},
		{"config-silent", "config", "none for the key"},
		{"prepare", "prepare", "no luck"},
		{"unserved", "prepare", "no response"},
		{"claim-path", "claims", `"relative"`},
		{"claim-match", "claims", "9"},
		{"claim-hooks", "claims", `"start"`},
		{"watch", "watch", "/test"},
		{"watch-silent", "watch", "none within"},
		{"once", "once", "OK"},
		{"calls", "calls", "no more than "},
		{"metrics", "metrics", "malformed"},
		{"metrics-name", "metrics", "names that begin with catena_"},
		{"metrics-twice", "metrics", "a series twice"},
		{"optional", "optional", "what is that?"},
		{"standby", "standby", "HTTP/1.1 "},
		{"closes", "requests", "Connection: close"},
		{"head", "requests", ""},
		{"peers", "peers", "--skip peers"},
		{"large-head", "large-head", "431"},
		{"large-head-300k", "large-head", "431"},
		{"encoded-path", "encoded-path", "404"},
		{"expect", "expect", "i/o timeout"},
		{"expect-decline", "expect", "100 Continue, and then a decline"},
		{"large-body", "large-body", "exited with status 5"},
		{"decline-read", "decline", "declined after asking for the body"},
		{"decline-changed", "decline", "5 bytes"},
		{"unread", "unread", "a response to the body, too"},
		{"odd-paths", "odd-paths", "200, as if it were /test"},
		{"echo", "echo", "differ from byte 100000 on"},
		{"streaming", "streaming", "no response"},
		{"trailers", "trailers", `""`},
		{"upgrade", "upgrade", "1000 bytes"},
		{"upgrade-not", "upgrade", "426"},
		{"slow-reader", "slow-reader", "no response"},
		{"concurrency", "concurrency", "no response"},
		{"cancellation", "cancellation", " later"},
		{"through-decline", "through", "a decline"},
		{"through-none", "through", "a response of the stage's own, 404"},
		{"through-token", "through", "a response of the stage's own, 401"},
		{"through-query", "through-request", "seen/a%2Fb"},
		{"through-path", "through-request", "seen/a/b?"},
		{"through-headers", "through-request", "[]"},
		{"through-twice", "through-request", `["one" "two" "one" "two"]`},
		{"through-host", "through-request", "elsewhere"},
		{"through-body", "through-request", "0 bytes"},
		{"through-drops", "through-response", "[]"},
		{"through-repeats", "through-response", `["one" "two" "one" "two"]`},
		{"through-status", "through-response", "200"},
		{"through-trailers", "through-trailers", `""`},
		{"through-buffers", "through-stream", "no response"},
		{"through-break", "through-break", "with a proper end"},
		{"through-upgrade", "through-upgrade", "426"},
		{"through-drain", "drain", "1|DeadlineExceeded"},
		{"hooks", "hooks", "no luck"},
		{"health", "health", "DeadlineExceeded"},
		{"sick", "health", "well: no luck"},
		{"health-names", "health", `those of ["other" "well"]`},
		{"health-unknown", "health", "a check that passes"},
		{"audit", "audit", "no JSON object of the members"},
		{"forged-audit", "audit", `the host leaves out ["other.stage.catena.dev/x"]`},
		{"latency", "audit", "not NAME=NANOSECONDS"},
		{"children", "children", "sleep (process"},
		{"memory", "memory", "MiB more"},
		{"idle", "idle", ""},
		{"signals", "signals", "its end"},
		{"logging", "logging", "flood"},
		{"log-format", "logging", `"loud"`},
		{"pre-shutdown", "pre-shutdown", "no luck"},
		// The SDK says what still runs 100 ms before the deadline: too late on a busy machine.
		{"drain", "drain", "1|DeadlineExceeded"},
		{"drain-stream", "drain", "1|DeadlineExceeded"},
		{"drain-spread", "drain", "all of them within"},
		{"drain-closes", "drain", "i/o timeout"},
		{"drain-watch", "drain", `""`},
		{"stop", "stop", "status 7"},
		{"host-death", "host-death", "a process that runs"},
	} {
		t.Run(tc.mode, func(t *testing.T) {
			t.Parallel()
			opts := Options{Endpoints: "/test/check", Through: "/test/through", Requests: 4000, Timeout: time.Minute, Only: []string{tc.check}}
			if *allChecks {
				opts.Only = nil
				if tc.check != "idle" {
					opts.Skip = []string{"idle"} // half a minute each
				}
			}
			switch tc.mode {
			case "through-buffers", "by-hand", "calls", "cancellation", "concurrency", "drain-closes", "drain-stream", "expect", "host-death", "sick",
				"slow-reader", "streaming", "unflushed", "unserved", "watch-silent": // fail by taking too long, whatever the machine
				if !*allChecks {
					opts.Timeout = 15 * time.Second
				}
			}
			if tc.check == "logging" && !*allChecks {
				opts.Only = []string{"concurrency", "memory", "logging"}
			}
			report := checkMode(t, tc.mode, opts)
			got := report.Results[len(report.Results)-1]
			for _, r := range report.Results {
				switch {
				case r.Check == tc.check:
					got = r
				case r.Status == Failed && !slices.Contains(strings.Fields(also[tc.mode]), r.Check):
					t.Errorf("%s fails too: %s", r.Check, r)
				}
			}
			t.Log(got)
			named := slices.ContainsFunc(strings.Split(tc.got, "|"), func(s string) bool { return strings.Contains(got.Got, s) })
			if got.Status != Failed || !named || got.Expected == "" {
				t.Errorf("want a failure with %q\n%s", tc.got, strings.Join(report.Log, "\n"))
			}
		})
	}
}

// A stage of which nothing works does not stand in the way of the report.
func TestNothingWorks(t *testing.T) {
	t.Parallel()
	report := checkMode(t, "handshake", Options{Timeout: 10 * time.Second})
	if report.Count(Failed) != 1 || report.Count(Skipped) != len(checks())-1 {
		t.Error(report.Summary())
	}
}

func TestNoBinary(t *testing.T) {
	t.Parallel()
	if _, err := Run(t.Context(), Options{Binary: "/no/such/file"}); err == nil || !strings.Contains(err.Error(), "/no/such/file") {
		t.Errorf("%v", err)
	}
}

// A name that is mistyped is no reason to pass.
func TestUnknownCheck(t *testing.T) {
	t.Parallel()
	_, err := Run(t.Context(), Options{Binary: "/no/such/file", Only: []string{"echo", "nosuch"}})
	if err == nil || !strings.Contains(err.Error(), `no check "nosuch"; the checks are handshake, `) {
		t.Errorf("%v", err)
	}
}

// What a stage logs is in the report of a failure with all that belongs to it.
func TestLogTail(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	log := r.process("prepare").logger(hclog.Info)
	r.process("other").logger(hclog.Info).Info("of a process in which nothing failed")
	log.Info("plain")
	log.Named("stage").Error("request failed", "path", "/a", "error", errors.New("no \"luck\" today"), "empty", "", "count", 3)
	if got := r.tail(); len(got) != 0 {
		t.Errorf("%q, though nothing failed", got)
	}
	r.show(2, &stage{log: r.processes[0]})
	for i, want := range []string{`process started for the check prepare:`, `[INFO] plain`, `[ERROR] request failed count=3 empty="" error="no \"luck\" today" path=/a`} {
		if got := r.tail(); len(got) != 3 || got[i] != want {
			t.Errorf("line %d of %q, want %q", i, got, want)
		}
	}
}

func formats(t *testing.T, report *Report) {
	t.Helper()
	report.Results = append(report.Results, Result{Check: "odd", Status: Failed, Expected: "<a>", Got: "b\nc", Section: "docs/protocol.md#x"},
		Result{Check: "none", Status: Skipped, Reason: "no \"reason\""})
	var js, junit bytes.Buffer
	for _, err := range []error{report.WriteJSON(&js), report.WriteJUnit(&junit)} {
		if err != nil {
			t.Error(err)
		}
	}
	var text strings.Builder // what catena stage check prints
	for _, result := range report.Results {
		text.WriteString(result.String())
	}
	text.WriteString(report.Summary())
	for _, want := range []string{"ok    echo", "FAIL  odd", "expected  <a>", "see       docs/protocol.md#x", "1 failed, "} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("text lacks %q:\n%s", want, text.String())
		}
	}
	var back Report
	if err := json.Unmarshal(js.Bytes(), &back); err != nil || len(back.Results) != len(report.Results) {
		t.Errorf("%v: %d results", err, len(back.Results))
	}
	var suite junitSuite
	if err := xml.Unmarshal(junit.Bytes(), &suite); err != nil || suite.Failures != 1 || suite.Skipped != report.Count(Skipped) || suite.Tests != len(report.Results) {
		t.Errorf("%v: %+v", err, suite)
	}
}

// Every section that a check names is there.
func TestSections(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "protocol.md"))
	if err != nil {
		t.Fatal(err)
	}
	anchors := map[string]bool{}
	notAnchor := regexp.MustCompile(`[^a-z0-9 -]`)
	for line := range strings.Lines(string(text)) {
		if heading, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			anchor := notAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			anchors[strings.ReplaceAll(anchor, " ", "-")] = true
		}
	}
	for _, c := range checks() {
		if !anchors[c.section] {
			t.Errorf("check %s: docs/protocol.md has no section #%s", c.name, c.section)
		}
	}
}

// The list of checks in the documentation is the list of checks.
func TestDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "protocol.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| check | what it looks at |\n|---|---|\n")
	var want strings.Builder
	for _, c := range checks() {
		want.WriteString("| `" + c.name + "` | " + c.summary + " |\n")
	}
	if !strings.HasPrefix(table, want.String()+"\n") {
		t.Errorf("docs/protocol.md, section 9, should have these rows:\n%s", want.String())
	}
}

// Each sentence of the protocol's page with must or should has a check, or a reason why it has none.
func TestRulesHaveChecks(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "protocol.md"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("testdata", "rules.txt"))
	if err != nil {
		t.Fatal(err)
	}
	sentences := ruleSentences(string(page))
	used := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		by, begin, ok := strings.Cut(strings.TrimSpace(line), " | ")
		if !ok {
			continue
		}
		names, _, _ := strings.Cut(by, ":")
		for name := range strings.SplitSeq(names, ", ") {
			if name != "none" && !slices.Contains(Names(), name) {
				t.Errorf("rules.txt: %s: there is no check %q", begin, name)
			}
		}
		i := slices.IndexFunc(sentences, func(s string) bool { return strings.HasPrefix(s, begin) })
		if i < 0 {
			t.Errorf("rules.txt: docs/protocol.md has no sentence that begins with %q, and has must or should", begin)
			continue
		}
		used[sentences[i]] = true
	}
	for _, s := range sentences {
		if !used[s] {
			t.Errorf("docs/protocol.md has a rule that is not in rules.txt: %s", s)
		}
	}
}

// ruleSentences are the sentences, cells of tables and items of lists that have must or should.
func ruleSentences(page string) []string {
	var units []string
	unit, code := "", false
	end := func() {
		if unit != "" {
			units = append(units, unit)
		}
		unit = ""
	}
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "```"):
			code = !code
		case code, strings.HasPrefix(line, "    "):
		case line == "", strings.HasPrefix(line, "#"):
			end()
		case strings.HasPrefix(line, "|"):
			end()
			for cell := range strings.SplitSeq(strings.Trim(line, "|"), " | ") {
				units = append(units, strings.TrimSpace(cell))
			}
		case strings.HasPrefix(line, "- "):
			end()
			unit = line[2:]
		default:
			unit = strings.TrimSpace(unit + " " + strings.TrimSpace(line))
		}
	}
	end()
	begin, rule := regexp.MustCompile("[.!?:;]\\s+([A-Z`*])"), regexp.MustCompile(`\b(must|should)\b`)
	var rules []string
	for _, unit := range units {
		from := 0
		for _, at := range append(begin.FindAllStringSubmatchIndex(unit, -1), []int{0, 0, len(unit)}) {
			if sentence := strings.TrimSpace(unit[from:at[2]]); rule.MatchString(sentence) {
				rules = append(rules, sentence)
			}
			from = at[2]
		}
	}
	return rules
}

// What interpreters and runtimes print when a program is wrong is told from what a program says of itself.
func TestBacktrace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"x: is a stage of Catena: put it into one of the pluginDirs":                                                                                      false,
		"is a stage of Catena and runs as a part of it:\nput the file into\nmore\nlines\nof help\nhere\n  --debug[=DIRECTORY]  waits for a host at 10:30": false,
		"Traceback (most recent call last):\n  File \"x\", line 3":                                                                                        true,
		"panic: no luck\n\ngoroutine 1 [running]:\nmain.main()":                                                                                           true,
		"x:3: syntax error, unexpected end-of-input":                                                                                                      true,
		"/x/stage.js:3\nSyntaxError: Unexpected token":                                                                                                    true,
		"ReferenceError: y is not defined\n    at Object.<anonymous> (/x/stage.js:3:1)":                                                                   true,
		"x:3:in 'main': undefined local variable or method 'y' (NameError)":                                                                               true,
		"Exception in thread \"main\" java.lang.NullPointerException":                                                                                     true,
		"thread 'main' panicked at src/main.rs:3:5:":                                                                                                      true,
	} {
		if got := backtrace.MatchString(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
