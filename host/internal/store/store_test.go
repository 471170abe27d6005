package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// modeEnv makes the test binary run one of childModes instead of the tests.
const modeEnv = "CATENA_STORE_TEST_MODE"

func TestMain(m *testing.M) {
	if mode := os.Getenv(modeEnv); mode != "" {
		os.Exit(runChild(mode, os.Args[1:]))
	}
	os.Exit(m.Run())
}

// runChild runs a mode and prints its error, as a host would.
func runChild(mode string, args []string) int {
	if err := childModes[mode](args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

var childModes = map[string]func(args []string) error{
	// write DIR: puts key after key and prints the number of each one acknowledged.
	"write": func(args []string) error {
		_, err := Open(context.Background(), optionsFor(args[0]))
		if err != nil {
			return err
		}
		client, err := dialStore(optionsFor(args[0]))
		if err != nil {
			return err
		}
		for i := 0; ; i++ {
			if _, err := client.Put(context.Background(), fmt.Sprintf("key-%d", i), "value"); err != nil {
				return err
			}
			fmt.Println(i)
		}
	},
	// hold DIR: opens the store, prints "open" and waits for the end of its input.
	"hold": func(args []string) error {
		s, err := Open(context.Background(), optionsFor(args[0]))
		if err != nil {
			return err
		}
		fmt.Println("open")
		if _, err := os.Stdin.Read(make([]byte, 1)); err == nil {
			return errors.New("unexpected input")
		}
		return s.Close(context.Background())
	},
}

func child(mode string, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), modeEnv+"="+mode)
	return cmd
}

// startChild starts a child and returns the reader of its output, a line at a time.
func startChild(t *testing.T, cmd *exec.Cmd) *bufio.Scanner {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.StdinPipe(); err != nil { // open until the child is waited for
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
	})
	return bufio.NewScanner(out)
}

func optionsFor(dir string) Options {
	return Options{Dir: dir, Socket: filepath.Join(dir, "etcd.sock")}
}

// newDir is a data directory whose path is short enough for a socket.
func newDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "store")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func dialStore(o Options) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: strings.Split(o.Flags()["etcd-servers"], ","),
		Logger:    zap.NewNop(),
	})
}

func mustOpen(t *testing.T, o Options) (*Store, *clientv3.Client) {
	t.Helper()
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dialStore(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s, client
}

func TestAcknowledgedWritesSurviveSIGKILL(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	cmd := child("write", dir)
	lines := startChild(t, cmd)
	acked := 0
	for acked < 200 && lines.Scan() {
		acked++
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		acked++ // acknowledged between the 200th and the kill
	}
	cmd.Wait()
	if acked < 200 {
		t.Fatalf("the writer ended by itself after %d writes", acked)
	}

	_, client := mustOpen(t, optionsFor(dir))
	for i := range acked {
		got, err := client.Get(t.Context(), fmt.Sprintf("key-%d", i))
		if err != nil {
			t.Fatal(err)
		}
		if got.Count != 1 {
			t.Fatalf("key-%d was acknowledged and is lost", i)
		}
	}
}

func TestSecondHostIsRefused(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	cmd := child("hold", dir)
	if lines := startChild(t, cmd); !lines.Scan() {
		t.Fatal("the first host did not open the store")
	}
	_, err := Open(t.Context(), optionsFor(dir))
	var locked *LockedError
	if !errors.As(err, &locked) || locked.PID != cmd.Process.Pid || locked.Dir != dir {
		t.Fatalf("error is %v, want LockedError of process %d", err, cmd.Process.Pid)
	}
	if text := err.Error(); strings.Contains(text, "\n") {
		t.Errorf("error has several lines: %q", text)
	}
	cmd.Process.Kill()
	cmd.Wait()
	mustOpen(t, optionsFor(dir)) // the lock dies with its process
}

func TestReopen(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	for range 3 {
		s, err := Open(t.Context(), optionsFor(dir))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-s.Failed():
			t.Fatalf("a closed store reports a failure: %v", err)
		default:
		}
	}
}

func TestFilesAreClosedToOthers(t *testing.T) {
	t.Parallel()
	o := optionsFor(newDir(t))
	mustOpen(t, o)
	for path, want := range map[string]os.FileMode{
		o.Socket:                     0o600 | os.ModeSocket,
		filepath.Join(o.Dir, "etcd"): 0o700 | os.ModeDir,
		filepath.Join(o.Dir, "lock"): 0o600,
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode(), want)
		}
	}
}

func TestOpenReleasesTheLockWhenItFails(t *testing.T) {
	t.Parallel()
	o := optionsFor(newDir(t))
	bad := o
	bad.Socket = "relative"
	if _, err := Open(t.Context(), bad); err == nil {
		t.Fatal("a relative socket path was accepted")
	}
	mustOpen(t, o)
}

func TestOpenUsesTheCallersLock(t *testing.T) {
	t.Parallel()
	o := optionsFor(newDir(t))
	lock, err := LockDir(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), o); err == nil {
		t.Fatal("the directory could be locked twice")
	}
	o.Lock = lock
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := LockDir(o.Dir); err == nil {
		t.Fatal("Close has released the caller's lock")
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
}

// A data directory that is deleted or moved is reported at once, not when etcd needs its next file.
func TestLostDataDir(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(dir string) error{
		"deleted": os.RemoveAll,
		"moved":   func(dir string) error { return os.Rename(dir, dir+".old") },
		"replaced": func(dir string) error {
			return errors.Join(os.Rename(dir, dir+".old"), os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, lockName), nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(newDir(t), "data")
			o := optionsFor(dir)
			o.Socket = filepath.Join(newDir(t), "etcd.sock")
			s, err := Open(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close(context.Background()) })
			if err := lose(dir); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-s.Failed():
				if err.Error() != "data directory "+dir+" was deleted or moved while it was in use" {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Error("not reported")
			}
		})
	}
}

// An interrupted start logs no error of etcd, and neither does the first start of a directory.
func TestEtcdLogsNoErrorsOfOurMaking(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]time.Duration{"at once": 0, "soon": 20 * time.Millisecond, "later": 60 * time.Millisecond, "in time": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := &logBuffer{}
			o := optionsFor(newDir(t))
			o.Logger = hclog.New(&hclog.LoggerOptions{Output: out, Level: hclog.Warn})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(after, cancel)
			if s, err := Open(ctx, o); err == nil {
				for ctx.Err() == nil && s.embedded.etcd.Server.ClusterVersion() == nil {
					time.Sleep(time.Millisecond)
				}
				if err := s.Close(context.Background()); err != nil {
					t.Error(err)
				}
			}
			if text := out.String(); text != "" {
				t.Errorf("etcd logs:\n%s", text)
			}
		})
	}
}

// logBuffer is a strings.Builder for concurrent writers.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
