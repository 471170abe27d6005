package sdk_test

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
)

// The test binary is also the stage that it tests: with asStage set, it is a process
// that runs the stage of stage_test.go.
const asStage = "SDK_TEST_AS_STAGE"

func TestMain(m *testing.M) {
	if os.Getenv(asStage) != "" {
		sdk.Main(testStage())
		return
	}
	if socket := os.Getenv(asStranger); socket != "" {
		os.Exit(askAsStranger(socket))
	}
	goleak.VerifyTestMain(settling{m})
}

// patience is how long a test waits for what has to happen.
const patience = time.Minute

// settling runs the tests, and waits for the goroutines that they have begun to end.
type settling struct{ *testing.M }

func (s settling) Run() int {
	code := s.M.Run()
	for end := time.Now().Add(patience); goleak.Find() != nil && time.Now().Before(end); {
		continue // Find has waited for a moment
	}
	return code
}

// start runs the test stage.
type start func(t *testing.T, opts stagetest.Options) *stagetest.Stage

func inProcess(t *testing.T, opts stagetest.Options) *stagetest.Stage {
	t.Helper()
	return stagetest.Start(t, testStage(), opts)
}

func asProcess(t *testing.T, opts stagetest.Options) *stagetest.Stage {
	t.Helper()
	return stagetest.StartProcess(t, command(), opts)
}

func command() *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{asStage + "=1"}
	return cmd
}

// both runs a test with a stage in this process and with one in a process of its own.
func both(t *testing.T, test func(t *testing.T, start start)) {
	t.Helper()
	t.Parallel()
	for name, start := range map[string]start{"service": inProcess, "process": asProcess} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, start)
		})
	}
}

// eventually fails the test if the condition does not become true.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}
