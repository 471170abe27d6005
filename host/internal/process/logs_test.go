package process

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/bounds"
)

// log collects what the host's logger writes.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func newTestLogs() (*logs, *log) {
	out := &log{}
	return newLogs(hclog.New(&hclog.LoggerOptions{Output: out, Level: hclog.Trace, DisableTime: true})), out
}

func TestLogLine(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ line, want string }{
		{`{"@level":"warn","@message":"m","@module":"x","b":[1,2],"a":1.50,"@caller":"f.go:1"}`, "[WARN]  m: caller=f.go:1 a=1.50 b=[1, 2]\n"},
		{`{"@level":"trace","@message":""}`, "[TRACE] \n"},
		{`{"@level":"off","@message":"m"}`, `[INFO]  {"@level":"off","@message":"m"}` + "\n"},
		{`{"@level":7,"@message":"m"}`, `[INFO]  {"@level":7,"@message":"m"}` + "\n"},
		{`{"level":"warn"}`, `[INFO]  {"level":"warn"}` + "\n"},
		{`{"@level":"warn",`, `[INFO]  {"@level":"warn",` + "\n"},
		{"I1121 09:03:01.123456   12345 file.go:123] all [is] well", "[INFO]  all [is] well: caller=file.go:123\n"},
		{"W1121 09:03:01.123456       1 a.go:1] hm", "[WARN]  hm: caller=a.go:1\n"},
		{"F1121 09:03:01.123456       1 a.go:1] end", "[ERROR] end: caller=a.go:1\n"},
		{"I1121 09:03:01.123456   12345 file.go:123", "[INFO]  I1121 09:03:01.123456   12345 file.go:123\n"},
		{`{"level":"warn","logger":"etcd-client","msg":"retrying of unary invoker failed","attempt":0}`,
			`[DEBUG] {"level":"warn","logger":"etcd-client","msg":"retrying of unary invoker failed","attempt":0}` + "\n"},
		{`{"@level":"error","@message":"oidc authenticator: initializing plugin: refused"}`,
			"[DEBUG] oidc authenticator: initializing plugin: refused\n"},
		{"plain text \r", "[INFO]  plain text\n"},
		{"broken \xff text", "[INFO]  broken \uFFFD text\n"},
		{"   ", ""},
		{"", ""},
	} {
		l, out := newTestLogs()
		l.line([]byte(tc.line))
		if diff := cmp.Diff(tc.want, out.String()); diff != "" {
			t.Errorf("%s\n%s", tc.line, diff)
		}
	}
}

// A backtrace names the file that people know, and not the link that the program was started by.
func TestLogNamesTheFile(t *testing.T) {
	t.Parallel()
	l, out := newTestLogs()
	l.link, l.binary = []byte("/run/x/catena-stage-a"), []byte("/opt/plugins/catena-stage-a")
	l.line([]byte(`File "/run/x/catena-stage-a", line 3, in /run/x/catena-stage-a`))
	if want := `File "/opt/plugins/catena-stage-a", line 3, in /opt/plugins/catena-stage-a`; !strings.Contains(out.String(), want) || !strings.Contains(strings.Join(l.tail.text(), ""), want) {
		t.Errorf("%s\n%s", out, l.tail.text())
	}
}

func TestPanicIsLoggedAsError(t *testing.T) {
	t.Parallel()
	l, out := newTestLogs()
	for _, line := range []string{"before", "panic: boom", "goroutine 1 [running]:", `{"@level":"info","@message":"on"}`, "after"} {
		l.line([]byte(line))
	}
	want := "[INFO]  before\n[ERROR] panic: boom\n[ERROR] goroutine 1 [running]:\n[INFO]  on\n[INFO]  after\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	numbered := func(word string, n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprint(word, i))
		}
		return out
	}
	var none []string
	for _, tc := range []struct {
		name     string
		in, want []string
	}{
		{"nothing", none, none},
		{"few", numbered("l", 3), numbered("l", 3)},
		{"last of many", numbered("l", 25), numbered("l", 25)[15:]},
		{"start of a panic", append(append(numbered("l", 5), "panic: x"), numbered("f", 50)...), append([]string{"panic: x"}, numbered("f", 9)...)},
		{"panic in a panic", []string{"panic: x", "fatal error: y"}, []string{"panic: x", "fatal error: y"}},
		{"survived panic", append(append([]string{"panic: x", `{"@level":"info","@message":"m"}`}, numbered("l", 9)...), "end"), append(numbered("l", 9), "end")},
		{"no blank lines, no debug", []string{"a", " ", `{"@level":"debug","@message":"m"}`, "b"}, []string{"a", "b"}},
		{"nothing planned", []string{"a", `{"level":"warn","msg":"retrying of unary invoker failed","attempt":0}`}, []string{"a"}},
		{"long", []string{strings.Repeat("x", 2000)}, []string{strings.Repeat("x", tailWidth)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l, _ := newTestLogs()
			for _, line := range tc.in {
				l.line([]byte(line))
			}
			if diff := cmp.Diff(tc.want, l.tail.text()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// However the bytes are cut into writes, the lines are those between line feeds,
// cut off at the limit.
func TestLineWriter(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var want []string
		var in bytes.Buffer
		for range random.IntN(6) {
			n := random.IntN(5)
			if random.IntN(4) == 0 {
				n = bounds.LogLine - 2 + random.IntN(5)
			}
			line := strings.Repeat(string(rune('a'+random.IntN(26))), n)
			in.WriteString(line + "\n")
			want = append(want, line[:min(n, bounds.LogLine)])
		}
		if random.IntN(2) == 0 {
			in.WriteString("end")
			want = append(want, "end")
		}
		var got []string
		w := &lineWriter{line: func(b []byte) { got = append(got, string(b)) }}
		for in.Len() > 0 {
			n, err := w.Write(in.Next(1 + random.IntN(bounds.LogLine)))
			if n == 0 || err != nil {
				t.Fatal(n, err)
			}
		}
		w.flush()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff[:min(len(diff), 2000)])
		}
	}
}

// The number of dropped lines is logged once in a while, not for every line that gets through.
func TestDropsAreReportedOnceInAWhile(t *testing.T) {
	t.Parallel()
	l := newLogs(hclog.NewNullLogger())
	reports, through, total, dropped := 0, 0, 0, 0
	began := time.Now()
	for range 5 {
		l.budget, l.filled = 0, time.Now().Add(-time.Second/bounds.LogPerSecond*10) // ten more lines
		for range 100 {
			total++
			n, ok := l.admit(1)
			if ok {
				through++
			}
			if n > 0 {
				reports++
				dropped += n
			}
		}
	}
	if most := 1 + int(time.Since(began)/dropReport); reports < 1 || reports > most || through < 10 || through+dropped+l.dropped != total {
		t.Errorf("%d reports of %d dropped lines, %d not reported, %d of %d came through", reports, dropped, l.dropped, through, total)
	}
}
