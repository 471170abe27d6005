package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDeadlockedStage has a stage that responds to calls, and whose check of /livez does not
// come back. One whose check fails is left alone.
func TestDeadlockedStage(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	f := ready(t, func(o *options) {
		o.Chain[1].LivenessTimeout, o.Chain[2].LivenessTimeout = 4*time.Second, 4*time.Second
		o.Chain[1].Config = map[string]any{"log": o.Chain[1].Config["log"], "stuck": file}
		o.Chain[2].Config = map[string]any{"log": o.Chain[2].Config["log"], "sick": file, "sickLivez": true}
	})
	stuck, sick := f.pid("b"), f.pid("c")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stage is killed", func() bool { return !running(stuck) })
	if f.pid("c") != sick || !running(sick) {
		t.Error("the stage whose check failed was killed")
	}
	removeFile(t, file)
	eventually(t, "another process serves", func() bool {
		body, err := f.get("b")
		return err == nil && !strings.HasPrefix(body, fmt.Sprint(stuck, " "))
	})
}

func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
