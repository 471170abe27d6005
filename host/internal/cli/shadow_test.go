package cli

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/host/internal/shadow"
)

// What begins, reports and ends a shadow prints what scripts and people need, and refuses what makes no sense.
func TestShadow(t *testing.T) {
	t.Parallel()
	h, data := startFakeHost(t)
	h.report = &shadow.Report{Stage: "core", Binary: "/x", From: "v1", To: "v2", Sample: 0.1, Began: time.Unix(0, 0), Ended: time.Unix(60, 0), Why: "its time was over", Results: map[string]int64{shadow.Equal: 3}, Groups: []shadow.Group{}}
	exec := func(args ...string) (string, int) {
		out, _, err := run(t, append(args, "--data-dir", data)...)
		var code exitCode
		if errors.As(err, &code); err != nil && code == 0 {
			return err.Error(), 1
		}
		return out, int(code)
	}
	equal := "core: v1 → v2 (/x), 10% of the requests\nended after 1m0s: its time was over\n3 equal\nno differences\n"
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"core", "--binary", "/x"}, 0, "stage core is shadowed by /x until 19"},
		{[]string{"core", "--binary", "/x", "-o", "json"}, 0, `"binary": "/x"`},
		{[]string{"report"}, 0, equal},
		{[]string{"report", "-o", "html"}, 0, "No differences."},
		{[]string{"stop"}, 0, "stage core is not shadowed any more: 3 equal"},
		{[]string{"core"}, 1, "--binary is required"},
		{[]string{"--binary", "x"}, 1, "the name of a stage"},
		{[]string{"core", "--binary", "x", "--for", "0s"}, 1, "--for 0s"},
		{[]string{"core", "--binary", "x", "--sample", "0%"}, 1, "--sample: want N%"},
		{[]string{"core", "--binary", "x", "--sample", "101%"}, 1, "--sample: want N%"},
		{[]string{"core", "--binary", "x", "--sample", "10"}, 1, "--sample: want N%"},
		{[]string{"core", "--binary", "x", "--sample", "NaN%"}, 1, "--sample: want N%"},
		{[]string{"core", "--binary", "x", "--budget", "900%"}, 1, "--budget: want N%"},
		{[]string{"report", "-o", "xml"}, 1, "xml"},
	} {
		if out, code := exec(append([]string{"shadow"}, c.args...)...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%v: exit code %d, printed %q, want %d and %q", c.args, code, out, c.code, c.want)
		}
	}
	h.report.Groups = []shadow.Group{{Resource: "pods.v1", Path: "spec.a", How: shadow.Changed, Count: 1}}
	for _, format := range []string{"text", "json", "html"} {
		if out, code := exec("shadow", "report", "-o", format); code != 2 || !strings.Contains(out, "spec.a") {
			t.Errorf("%s: exit code %d, printed %q", format, code, out)
		}
	}
	out, _ := exec("shadow", "report", "-o", "json")
	var got shadow.Report
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Groups[0].Path != "spec.a" {
		t.Errorf("%v: %s", err, out)
	}
}
