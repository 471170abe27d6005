package supervisor

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/catena-dev/catena/sdk"
)

// The test binary is also the stages: this variable has the stage's name.
const envStage = "SUPERVISOR_TEST_STAGE"

func TestMain(m *testing.M) {
	if name := os.Getenv(envStage); name != "" {
		sdk.Main(sdk.Stage{Name: name, Version: "v1", New: constructor(os.Getenv(envFault)), Validate: validateTestStage, ConfigSchema: os.Getenv(envSchema), Kubernetes: describedRelease()})
		os.Exit(0)
	}
	// The tests wait more than they work; -parallel still has the last word.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func validateTestStage(config []byte, _ []string) []sdk.ConfigProblem {
	if strings.Contains(string(config), `"hook":"refused"`) {
		return []sdk.ConfigProblem{{Key: "hook", Message: "no such hook"}}
	}
	return nil
}

// newTestStage serves /NAME with the names of the stages downstream and its
// process id, and writes what happens to it into a file.
func newTestStage(env *sdk.Env) (http.Handler, error) {
	var cfg testConfig
	if err := env.Config(&cfg); err != nil {
		return nil, err
	}
	note := func(what string) {
		f, err := os.OpenFile(cfg.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err == nil {
			fmt.Fprintln(f, what, env.Name)
			f.Close()
		}
	}
	var behind []string
	for _, d := range env.Delegates() {
		behind = append(behind, fmt.Sprint(d.Name, d.ListedPaths))
	}
	note("configure")
	hold(cfg.Hold)
	env.Claim("/" + env.Name)
	env.ListPaths(append(cfg.Paths, "/"+env.Name)...)
	env.Claim(cfg.Paths...)
	env.ClaimPrefix(cfg.See...)
	if cfg.Sick != "" {
		env.HealthCheck("well", sdk.HealthKinds{Readyz: true, Livez: cfg.SickLivez}, func(context.Context) error {
			time.Sleep(cfg.SickAfter)
			if _, err := os.Stat(cfg.Sick); err == nil {
				return errors.New("it is sick")
			}
			return nil
		})
	}
	if cfg.Stuck != "" {
		env.HealthCheck("alive", sdk.HealthKinds{Livez: true}, func(context.Context) error {
			if _, err := os.Stat(cfg.Stuck); err == nil {
				select {}
			}
			return nil
		})
	}
	for _, signal := range []string{"HasBeenReady", "ShutdownInitiated"} {
		noted := sync.OnceFunc(func() { note(signal) })
		go func() {
			<-env.Signal(signal)
			noted()
		}()
		env.OnDestroy(func() { // the process ends before the goroutine has run, maybe
			select {
			case <-env.Signal(signal):
				noted()
			default:
			}
		})
	}
	if cfg.Complete != "" {
		find(env, cfg.Complete)
	}
	env.OnPrepareRun(func(context.Context) error { note("prepare"); return nil })
	env.PostStartHook("start", func(ctx context.Context) error {
		note("post-start")
		if cfg.Ask != "" {
			return ask(ctx, env, cfg.Ask)
		}
		if cfg.AskItself {
			return askItself(ctx, env)
		}
		select {
		case <-env.Signal("HasBeenReady"):
			note("post-start knows")
		default:
		}
		switch cfg.Hook {
		case "fail":
			return errors.New("the hook does not like it")
		case "exit": // as klog.Fatal in one of Kubernetes' hooks
			env.Log.Error("the hook ends the process")
			os.Exit(255)
		}
		return nil
	})
	env.PreShutdownHook("leave", func(context.Context) error { note("pre-shutdown"); return nil })
	env.OnDestroy(func() { note("destroy") })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/"+env.Name && !slices.Contains(cfg.Paths, r.URL.Path):
			if cfg.Hand != "" && r.FormValue("wait") != "" {
				awaitFile(r.Context(), cfg.Hand)
				env.Call.ServeHTTP(w, r)
				return
			}
			env.Next.ServeHTTP(w, r)
		case r.FormValue("hold") != "":
			fmt.Fprint(w, os.Getpid(), " ", hold(r.FormValue("hold")))
		case r.FormValue("files") != "":
			var l syscall.Rlimit
			_ = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l)
			fmt.Fprint(w, l.Cur, " ", l.Max, " ", os.Getenv("GOMEMLIMIT"))
		case r.FormValue("watch") != "":
			<-sdk.DrainingFrom(r.Context())
		case r.FormValue("slow") != "":
			note("slow")
			awaitFile(r.Context(), r.FormValue("slow"))
			fallthrough
		default:
			if cfg.Status != 0 {
				w.WriteHeader(cfg.Status)
			}
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%d %v%s", os.Getpid(), behind, body)
		}
	}), nil
}

// held is the memory that the process holds on to.
var held [][]byte

// hold makes the process use that many MiB more, and reports how many.
func hold(mebibytes string) int {
	n, _ := strconv.Atoi(mebibytes)
	for range n {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 512 {
			b[i] = 1
		}
		held = append(held, b)
	}
	return n
}

// testConfig is what a test can make of a stage.
type testConfig struct {
	Log, Hook, Complete string
	// Paths are served besides /NAME, and See are prefixes that are claimed and handed on.
	Paths, See []string
	// Sick is the file at whose sight the readiness check fails.
	Sick string
	// SickLivez says that it is a check of /livez too.
	SickLivez bool
	// SickAfter is how long that check takes.
	SickAfter time.Duration
	// Stuck is the file at whose sight the check of /livez comes back no more.
	Stuck string
	// Hand is the file before whose sight slow requests are not handed on.
	Hand string
	// Status is that of the responses.
	Status int
	// Ask is a stage downstream, which the post-start hook asks until it responds.
	Ask string
	// AskItself makes the post-start hook call the stage through the API of the server.
	AskItself bool
	// Hold is how many MiB the process uses from its start on.
	Hold string
}

// askItself calls the stage through the API of the server, which must work.
func askItself(ctx context.Context, env *sdk.Env) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://host/"+env.Name, nil)
	if err != nil {
		return err
	}
	resp, err := env.Client().Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the server responds %s %s", resp.Status, body)
	}
	return nil
}

// ask returns when a delegate has responded to a call.
func ask(ctx context.Context, env *sdk.Env, name string) error {
	delegates := env.Delegates()
	i := slices.IndexFunc(delegates, func(d sdk.Delegate) bool { return d.Name == name })
	for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		rec := httptest.NewRecorder()
		delegates[i].Handler.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, http.MethodGet, "/"+name, nil))
		switch rec.Code {
		case http.StatusOK:
			return nil
		case http.StatusServiceUnavailable:
		default:
			return fmt.Errorf("delegate %s: %d %s", name, rec.Code, rec.Body)
		}
	}
	return ctx.Err()
}

// awaitFile returns when a file exists.
func awaitFile(ctx context.Context, file string) {
	for ctx.Err() == nil {
		if _, err := os.Stat(file); err == nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// suspend stops a process, and returns when each of its threads stands still.
func suspend(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the process is suspended", func() bool {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		return !slices.ContainsFunc(threads, func(file string) bool {
			stat, err := os.ReadFile(file)
			return err == nil && !strings.Contains(string(stat), ") T ")
		})
	})
}
