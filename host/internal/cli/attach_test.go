package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestAttachments(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/7")
	a, err := parseAttachments([]string{"hello", "other=/tmp/o"})
	if err != nil || !strings.HasPrefix(a["hello"], "/run/user/7/catena-debug-") || filepath.Base(a["other"]) != "o" {
		t.Errorf("got %v, %v", a, err)
	}
	for _, wrong := range [][]string{{""}, {"=x"}, {"a="}, {"a", "a=/x"}} {
		if a, err := parseAttachments(wrong); err == nil {
			t.Errorf("%q: got %v", wrong, a)
		}
	}
}

func TestAttachUnknownStage(t *testing.T) {
	_, _, err := run(t, "serve", "--config", write(t, ""), "--data-dir", t.TempDir(), "--attach", "helo")
	if err == nil || !strings.Contains(err.Error(), `there is no stage "helo" in the chain, which is front, core, tail`) {
		t.Errorf("got %v", err)
	}
}
