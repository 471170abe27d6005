package kubelog

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/printable"
)

// log writes a line of each kind.
func log(o hclog.LoggerOptions) {
	o.Name, o.Level = "catena", hclog.Trace
	l := hclog.New(&o)
	l.Info("serving", "address", "[::]:6443", "requests", 3)
	l.Named("core").With("stage", "core").Warn("a line\nand \"another\"")
	l.Error("cannot", "error", errors.New("refused"))
	l.Debug("list", "of", []string{"a", "b"})
}

func TestText(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log(Text(&out, 4242))
	got := regexp.MustCompile(`(?m)^(.)\d{4} \d\d:\d\d:\d\d\.\d{6} `).ReplaceAllString(out.String(), "${1}TIME ")
	want := `ITIME    4242 catena:1] "serving" address="[::]:6443" requests=3
WTIME    4242 catena.core:1] "a line\nand \"another\"" stage="core"
ETIME    4242 catena:1] "cannot" err="refused"
ITIME    4242 catena:1] "list" of=["a","b"]
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	var out bytes.Buffer
	log(JSON(&out))
	want := []map[string]any{
		{"logger": "catena", "caller": "catena:1", "msg": "serving", "v": 0.0, "address": "[::]:6443", "requests": 3.0},
		{"logger": "catena.core", "caller": "catena.core:1", "msg": "a line\nand \"another\"", "v": 0.0, "stage": "core"},
		{"logger": "catena", "caller": "catena:1", "msg": "cannot", "err": "refused"},
		{"logger": "catena", "caller": "catena:1", "msg": "list", "v": 4.0, "of": []any{"a", "b"}},
	}
	for dec, i := json.NewDecoder(&out), 0; i < len(want); i++ {
		got := map[string]any{}
		if err := dec.Decode(&got); err != nil {
			t.Fatal(err)
		}
		ts, _ := got["ts"].(float64)
		if at := time.UnixMicro(int64(ts * 1000)); at.Before(begun.Add(-time.Second)) || at.After(time.Now().Add(time.Second)) {
			t.Errorf("ts is %v", got["ts"])
		}
		delete(got, "ts")
		if diff := cmp.Diff(want[i], got); diff != "" {
			t.Error(diff)
		}
	}
}

// What a line has of others cannot control the terminal of who reads it, nor change its order.
func TestJSONCanBePrinted(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	o := JSON(&out)
	hclog.New(&o).Info("a\u009b31mb", "stage", "\u202etxt", "\u2066key", 1)
	if text := strings.TrimSuffix(out.String(), "\n"); !printable.Is(text) {
		t.Errorf("%q", text)
	}
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got["msg"] != "a\u009b31mb" || got["stage"] != "\u202etxt" {
		t.Errorf("%v, %v", got, err)
	}
}

// What is no line of hclog is not lost.
func TestOtherText(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	for _, text := range []string{"panic\n", "{}\n"} {
		if n, err := Text(&out, 1).Output.Write([]byte(text)); n != len(text) || err != nil {
			t.Error(n, err)
		}
	}
	if out.String() != "panic\n{}\n" {
		t.Errorf("%q", out.String())
	}
}
