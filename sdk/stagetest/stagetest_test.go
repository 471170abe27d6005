package stagetest_test

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
)

// hello serves one path. It claims more than it serves.
func hello(env *sdk.Env) (http.Handler, error) {
	env.ClaimPrefix("/hello")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/hello" {
			env.Next.ServeHTTP(w, r)
			return
		}
		_, _ = io.WriteString(w, "hello "+sdk.UserFrom(r.Context()).Name)
	}), nil
}

const asStage = "STAGETEST_AS_STAGE"

func TestMain(m *testing.M) {
	if os.Getenv(asStage) != "" {
		sdk.Main(sdk.Stage{Name: "hello", New: hello})
		return
	}
	goleak.VerifyTestMain(settling{m})
}

// settling runs the tests, and waits for the goroutines that they have begun to end.
type settling struct{ *testing.M }

func (s settling) Run() int {
	code := s.M.Run()
	for end := time.Now().Add(time.Minute); goleak.Find() != nil && time.Now().Before(end); {
		continue // Find has waited for a moment
	}
	return code
}

// Both ways of running a stage behave alike.
func TestStage(t *testing.T) {
	t.Parallel()
	opts := stagetest.Options{
		User: &sdk.User{Name: "jane"},
		Next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "next") }),
	}
	for name, start := range map[string]func(*testing.T) *stagetest.Stage{
		"in process": func(t *testing.T) *stagetest.Stage {
			return stagetest.Start(t, sdk.Stage{Name: "hello", New: hello}, opts)
		},
		"process": func(t *testing.T) *stagetest.Stage {
			cmd := exec.Command(os.Args[0])
			cmd.Env = []string{asStage + "=1"}
			return stagetest.StartProcess(t, cmd, opts)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stage := start(t)
			for path, want := range map[string]string{"/hello": "hello jane", "/hello/you": "next"} {
				if got := body(t, stage.URL+path); got != want {
					t.Errorf("%s: %q, want %q", path, got, want)
				}
			}
			if got := stage.Declined(); got != 1 {
				t.Errorf("%d declines, want 1", got)
			}
			if !stage.Claimed("/hello/you") || stage.Claimed("/") {
				t.Errorf("claims: %v", stage.Claims())
			}
		})
	}
}

func body(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
