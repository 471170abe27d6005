package sdk_test

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/catena-dev/catena/sdk/stagetest"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Signals that go to a whole terminal or service leave the stage to the host.
func TestSignals(t *testing.T) {
	t.Parallel()
	stage := asProcess(t, stagetest.Options{})
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		for range 3 {
			if err := syscall.Kill(stage.PID(), signal); err != nil {
				t.Fatal(err)
			}
		}
		if resp, _ := get(t, stage.URL+"/hello"); resp.StatusCode != http.StatusOK {
			t.Errorf("after %v: %s", signal, resp.Status)
		}
	}
}

// A process whose host is gone ends at once, whatever it is doing.
func TestHostGone(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"serving", "in New"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			var stage *stagetest.Stage
			if state == "serving" {
				stage = asProcess(t, stagetest.Options{})
				resp, err := http.Get(stage.URL + "/until-drain")
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
			} else {
				stage = stagetest.LaunchProcess(t, command(), stagetest.Options{Config: testConfig{Fail: "hang"}})
				go func() { _ = stage.Configure() }()
			}
			stage.LoseHost()
			eventually(t, "the process ends", stage.Exited)
			if code := stage.ExitCode(); code != 3 { // that of an end for this reason
				t.Errorf("status %d", code)
			}
		})
	}
}

// The process ends by itself after Stop, with status 0.
func TestStopEndsProcess(t *testing.T) {
	t.Parallel()
	stage := asProcess(t, stagetest.Options{})
	watch, err := stage.RPC.Watch(t.Context(), &stagev1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	if _, err := stage.RPC.Stop(t.Context(), &stagev1.StopRequest{}); err != nil {
		t.Errorf("Stop: %v", err)
	}
	eventually(t, "the process ends", stage.Exited)
	if code := stage.ExitCode(); code != 0 {
		t.Errorf("status %d", code)
	}
}

// Only the host is served at the data socket, even if others can reach it.
func TestOnlyHostIsServed(t *testing.T) {
	t.Parallel()
	stage := asProcess(t, stagetest.Options{})
	stranger := exec.Command(os.Args[0])
	stranger.Env = append(os.Environ(), asStranger+"="+stage.Socket())
	out, err := stranger.CombinedOutput()
	if err == nil || strings.Contains(string(out), "HTTP/1.1") {
		t.Errorf("a stranger got %q, %v", out, err)
	}
	if resp, _ := get(t, stage.URL+"/hello"); resp.StatusCode != http.StatusOK {
		t.Errorf("the host got %s", resp.Status)
	}
	eventually(t, "the log names the stranger", func() bool { return strings.Contains(stage.Log(), "is not the host") })
}

// asStranger makes the test binary ask at a data socket that is not its own.
const asStranger = "SDK_TEST_AS_STRANGER"

func askAsStranger(socket string) int {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return 1
	}
	_, _ = conn.Write([]byte("GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"))
	response := make([]byte, 100)
	n, err := conn.Read(response)
	_, _ = os.Stdout.Write(response[:n])
	if err != nil {
		return 2
	}
	return 0
}

// A stage that is started by hand says how it is meant to be used.
func TestStartedByHand(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		env  []string
		want string
	}{
		"no cookie":   {nil, "is a stage of Catena"},
		"no pipe":     {[]string{stagev1.MagicCookieKey + "=" + stagev1.MagicCookieValue}, stagev1.EnvParent},
		"no listener": {[]string{stagev1.MagicCookieKey + "=" + stagev1.MagicCookieValue, stagev1.EnvParent + "=0"}, stagev1.EnvListener},
		"bad pipe":    {[]string{stagev1.MagicCookieKey + "=" + stagev1.MagicCookieValue, stagev1.EnvParent + "=77"}, "bad file descriptor"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := command()
			cmd.Env = append(append(os.Environ(), cmd.Env...), tc.env...)
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			defer stdin.Close()
			out, err := cmd.CombinedOutput()
			if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 1 || !strings.Contains(string(out), tc.want) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// The stage's log lines keep level and fields; what it prints does not disturb go-plugin.
func TestLog(t *testing.T) {
	t.Parallel()
	stage := asProcess(t, stagetest.Options{})
	for range 3 {
		if resp, _ := get(t, stage.URL+"/log"); resp.StatusCode != http.StatusOK {
			t.Errorf("%s", resp.Status)
		}
	}
	eventually(t, "the log has the line", func() bool {
		return strings.Contains(stage.Log(), `"@level":"warn","@message":"from the stage"`) && strings.Contains(stage.Log(), `"answer":42`)
	})
}
