package process

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/printable"
)

// hostileLines are what a stage writes to make the host's log say something else.
var hostileLines = []string{
	`{"@level":"info","@message":"ok\n2026-01-01T00:00:00.000Z [ERROR] front: all is lost"}`,
	`{"@level":"info","@message":"\n[ERROR] front: all is lost"}`,
	`{"@level":"info","@message":"ok\r[ERROR] front: all is lost"}`,
	`{"@level":"info","@message":"\u001b[2J\u001b[1;1H[ERROR] front: all is lost\u202e\u2028\u0085\u009b2J"}`,
	`{"@level":"info","@message":"m","a\n[ERROR] front":"all is lost"}`,
	`{"@level":"info","@message":"m","\u001b[2J":"x","":"y","@":"z","b c=d":"e"}`,
	`{"@level":"info","@message":"m","a":"x\n[ERROR] front: all is lost\u001b[2J"}`,
	`{"@level":"info","@message":"m","a":["\u001b[2J",["\u001b[2J\n[ERROR]"],{"\u001b[2J\n":"\u001b[2J\n"}]}`,
	`{"@level":"info","@message":"m","a":{"\u001b[2J\n[ERROR] front":"\u001b[2J\n[ERROR] front"}}`,
	`{"@level":"info","@message":"m","@@level":"error","@@module":"front","@@timestamp":"1999","@@message":"x","@@caller":"x","@@@level":"error"}`,
	"I1121 09:03:01.123456   12345 file.go:1\x1b[2J\r] m\x1b[2J\r[ERROR] front: all is lost",
	"\x1b[2J\x1b[1;1H[ERROR] front: all is lost\r\x9b\x85\u2028",
	"\t[ERROR] front: all is lost\x00\b\b\b\b\b\b\b\b",
	"panic: \x1b[2J",
}

// logAs returns what is written of a stage's line by a host that logs text or JSON.
func logAs(line string, asJSON bool) string {
	out := &log{}
	l := newLogs(hclog.New(&hclog.LoggerOptions{
		Output: out, Level: hclog.Trace, Name: "stage", JSONFormat: asJSON,
		TimeFn: func() time.Time { return time.Unix(0, 0).UTC() }, TimeFormat: time.RFC3339,
	}))
	l.line([]byte(line))
	return out.String()
}

const epoch = "1970-01-01T00:00:00Z"

var textEntry = regexp.MustCompile(`^` + epoch + ` \[(TRACE|DEBUG|INFO|WARN|ERROR)\] {1,2}stage`)

// checkText reports what a stage has forged in a line of the log: it holds one entry, all other
// lines are marked, and nothing controls the terminal.
func checkText(text string) error {
	if text == "" {
		return nil // a blank line
	}
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		switch {
		case strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }):
			return fmt.Errorf("unprintable: %q", line)
		case i == 0 && !textEntry.MatchString(line):
			return fmt.Errorf("no entry: %q", line)
		case i > 0 && !strings.HasPrefix(line, "  "):
			return fmt.Errorf("not marked: %q", line)
		}
	}
	return nil
}

// checkJSON is checkText for JSON: it holds one object, with the host's fields.
func checkJSON(text string) error {
	if text == "" {
		return nil
	}
	if strings.Count(text, "\n") != 1 {
		return fmt.Errorf("not one line: %q", text)
	}
	fields := map[string]any{}
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		return err
	}
	if fields["@module"] != "stage" || fields["@timestamp"] != epoch {
		return fmt.Errorf("forged: %s", text)
	}
	for name := range fields {
		if strings.HasPrefix(name, "@") && !strings.Contains("@module @timestamp @message @level", name) {
			return fmt.Errorf("field of the host: %s", text)
		}
	}
	return nil
}

// A stage cannot forge the lines that the host logs.
func TestHostileLog(t *testing.T) {
	t.Parallel()
	for _, line := range hostileLines {
		if err := checkText(logAs(line, false)); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		out := logAs(line, true)
		if err := checkJSON(out); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		if strings.Contains(line, `"@level":"info"`) && !strings.Contains(out, `"@level":"info"`) {
			t.Errorf("%q: level forged: %s", line, out)
		}
		l := newLogs(hclog.NewNullLogger())
		l.line([]byte(line))
		for _, shown := range l.tail.text() {
			if !printable.Is(shown) {
				t.Errorf("%q: shown with an error as %q", line, shown)
			}
		}
	}
}

// A stack stays readable, and all of it is marked as one entry's.
func TestStackInLog(t *testing.T) {
	t.Parallel()
	line := `{"@level":"error","@message":"panic","@timestamp":"x","stack":"goroutine 7 [running]:\nmain.main()\n\t/src/main.go:7 +0x1d"}`
	want := epoch + " [ERROR] stage: panic:\n  stack=\n  | goroutine 7 [running]:\n  | main.main()\n  |     /src/main.go:7 +0x1d\n  \n"
	if diff := cmp.Diff(want, logAs(line, false)); diff != "" {
		t.Error(diff)
	}
	line = `{"@level":"error","@message":"Observed a panic: boom\ngoroutine 7 [running]:\n\t/src/main.go:7\n"}`
	want = epoch + " [ERROR] stage: Observed a panic: boom:\n  detail=\n  | goroutine 7 [running]:\n  |     /src/main.go:7\n  \n"
	if diff := cmp.Diff(want, logAs(line, false)); diff != "" {
		t.Error(diff)
	}
}

func FuzzLogLine(f *testing.F) {
	f.Add([]byte(`{"@level":"warn","@message":"m","@timestamp":3}`))
	f.Add([]byte("I1121 09:03:01.123456   12345 file.go:123] x"))
	for _, line := range hostileLines {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if strings.Contains(string(line), "\n") {
			return // the lines are cut before
		}
		if err := checkText(logAs(string(line), false)); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		if err := checkJSON(logAs(string(line), true)); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	})
}
