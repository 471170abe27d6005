package fuzz

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What must not be in a log is found there.
func TestLogIsChecked(t *testing.T) {
	t.Parallel()
	const head = "2026-01-01T00:00:00.000Z [INFO]  "
	begun := head + "catena.random-a: text\n"
	for text, want := range map[string]string{
		"  export KUBECONFIG=x\nready after 1s\n" + begun:                       "",
		begun + head + "catena: stage ended:\n  tail=\n  | panic: x\n  \n":      "",
		begun + "  | panic: catena/host/internal/relay\n":                       "",
		begun + "catena: pre-shutdown hook failed\n":                            "",
		begun + head + "catena: serving\n  | catena/host/internal/relay.f()\n":  "a panic",
		begun + head + "catena: a panic in what the host does for a stage: x\n": "a panic",
		begun + "panic: runtime error\n":                                        "a panic",
		begun + "goroutine 1 [running]:\n":                                      "a panic",
		begun + "2026-01-01 [ERROR] forged\n":                                   "a line without a head",
		begun + head + "catena.random-a: \x1b[2J\n":                             "a character that cannot be printed",
		begun + head + "catena.random-a: before\rafter\n":                       "a character that cannot be printed",
		begun + head + "catena.random-b: \u2028\n":                              "a character that cannot be printed",
		begun + head + "catena.random-b: \xff\n":                                "no UTF-8",
	} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := follow(path)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(f.next(), "\n")
		if want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
		if f.bytes != int64(len(text)) {
			t.Errorf("%q: %d bytes", text, f.bytes)
		}
		_ = f.file.Close()
	}
}

// The same seed makes the same choices, whatever else happens at the time.
func TestSeedRepeats(t *testing.T) {
	t.Parallel()
	a, b := newChoices(7, "random-a process 1", "", "", nil), newChoices(7, "random-a process 1", "", "", nil)
	b.of("call")
	if x, y := a.of("response").response(false), b.of("response").response(false); string(x) != string(y) {
		t.Errorf("%.100q and %.100q", x, y)
	}
	if x, y := a.of("response").Uint64(), newChoices(8, "random-a process 1", "", "", nil).of("response").Uint64(); x == y {
		t.Error("another seed makes the same choices")
	}
	if s := newChoices(7, "", "", "giant", nil).of("Watch"); s.pick("giant Watch", "error Watch") != "error Watch" || s.fault(1, "giant Watch") {
		t.Error("what is left out happens")
	}
}

// A stage of Kubernetes that is not alive is not excused by one at random.
func TestOnlyRandomFail(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]bool{
		"[+]ping ok\n[-]random-a/check failed: reason withheld\n": true,
		"[-]random-a/check failed\n[-]core/x failed\n":            false,
		"[+]ping ok\n": false,
	} {
		if onlyRandomFail([]byte(body)) != want {
			t.Errorf("%q: %t", body, !want)
		}
	}
}
