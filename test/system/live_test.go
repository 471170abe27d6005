package system

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// liveSite is a running Catena with two small stages, hello and neighbour, whose
// configuration and plugins change.
type liveSite struct {
	*cluster.Catena
	config, plugins string
	startTimeout    string
}

func startLiveSite(t *testing.T, startTimeout string) *liveSite {
	t.Helper()
	s := &liveSite{startTimeout: startTimeout, config: filepath.Join(t.TempDir(), "catena.yaml"), plugins: plugins(t, "hello", "neighbour")}
	s.configure(t, "good day")
	s.Catena = catena(t, cluster.Options{
		ConfigFile: s.config, PluginDirs: []string{s.plugins}, OwnPlugins: true,
		Flags: map[string]string{"authorization-mode": "AlwaysAllow"},
	})
	return s
}

// configure writes the configuration with a greeting of hello's.
func (s *liveSite) configure(t *testing.T, greeting string) {
	t.Helper()
	head, _, _ := strings.Cut(string(read(filepath.Join(cluster.Root(), "configs", "hello.yaml"))), "stages:\n")
	text := head + fmt.Sprintf(`holdTimeout: 1s
stages:
  hello: {lock: off, isolation: off, delegate: neighbour, grants: {claims: ["/**"]}, startTimeout: %s, config: {greeting: %q}}
  neighbour: {lock: off, grants: {claims: ["/**"]}, config: {serves: [%q]}}
`, s.startTimeout, greeting, sharedPath)
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// generations are those that serve, and the count of other processes.
func (s *liveSite) generations(t *testing.T) (serving map[string]string, others int) {
	t.Helper()
	status, err := s.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	serving = map[string]string{}
	for _, st := range status.Stages {
		serving[st.Stage] = st.Generation + " " + st.State
		others += len(st.Others)
	}
	return serving, others
}

// greeting is what hello greets with.
func (s *liveSite) greeting(t *testing.T) string {
	t.Helper()
	return do(t, s.Config(cluster.Admin), http.MethodGet, "/stage/hello", "").seen(t).Greeting
}

// faulty writes a program that starts hello with a fault.
func (s *liveSite) faulty(t *testing.T, fault string, env ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "faulty")
	script := fmt.Sprintf("#!/bin/sh\nexport %s='%s' %s\nexec %s\n", envFault, fault, strings.Join(env, " "), filepath.Join(s.plugins, "catena-stage-hello"))
	if err := cluster.WriteProgram(path, []byte(script)); err != nil {
		t.Fatal(err)
	}
	return path
}

// A swap to a binary that is not fit to serve says why, once, and changes nothing.
func TestSwapToBadBinary(t *testing.T) {
	t.Parallel()
	s := startLiveSite(t, "10s")
	before, _ := s.generations(t)
	for name, tc := range map[string]struct {
		binary string
		want   []string
	}{
		"missing":        {"/no/such/binary", []string{"/no/such/binary", "no such file"}},
		"not executable": {write(t, "plugin", "x"), []string{"is not executable", "chmod +x"}},
		"no plugin":      {"/bin/true", []string{"/bin/true", "before the handshake"}},
		"wrong protocol": {s.faulty(t, "protocol"), []string{"speaks version 9 of the stage protocol"}},
		"crash":          {s.faulty(t, "exit"), []string{"exited with status 3", "the licence has expired"}},
		"hang":           {s.faulty(t, "hang"), []string{"did not send its handshake within 10s"}},
		"other stage":    {s.faulty(t, "other name"), []string{"somebody-else"}},
		"never ready":    {s.faulty(t, "never ready"), []string{"ready", "mood"}},
		"conflict":       {s.faulty(t, "conflicts"), []string{"would serve " + sharedPath, `"neighbour" serves`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.Command(t.Context(), "swap", "hello", "--binary", tc.binary)
			if err == nil {
				t.Fatal("it is accepted")
			}
			if n := strings.Count(err.Error(), "catena: "); n != 1 {
				t.Errorf("%d messages: %v", n, err)
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q is not in the message: %v", w, err)
				}
			}
			if now, others := s.generations(t); fmt.Sprint(now) != fmt.Sprint(before) || others != 0 {
				t.Errorf("the stages were %v and are %v, with %d other processes", before, now, others)
			}
			if got := s.greeting(t); got != "good day" {
				t.Errorf("the greeting is %q", got)
			}
		})
	}
	if out, err := s.Command(t.Context(), "swap", "hello"); err != nil || !strings.Contains(out, "swapped") {
		t.Errorf("a swap after all of that: %q %v", out, err)
	}
}

// What is asked for while a swap is under way is done after it, or refused with a word.
func TestChangesDuringASwap(t *testing.T) {
	t.Parallel()
	s := startLiveSite(t, "1m")
	start := filepath.Join(t.TempDir(), "go")
	swapped := s.background(t, "swap", "hello", "--binary", s.faulty(t, "slow", envGo+"='"+start+"'"))
	eventually(t, "the swap is under way", func() bool { _, others := s.generations(t); return others > 0 })

	second := s.background(t, "swap", "hello")
	s.configure(t, "good night")
	reloaded := s.background(t, "reload")
	if got := s.greeting(t); got != "good day" {
		t.Errorf("during the swap the greeting is %q", got)
	}
	if err := os.WriteFile(start, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-swapped; err != nil {
		t.Errorf("the first swap: %v", err)
	}
	for what, done := range map[string]<-chan error{"the second swap": second, "the reload": reloaded} {
		if err := <-done; err != nil && !strings.Contains(err.Error(), "under way") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := s.Command(t.Context(), "reload"); err != nil {
		t.Error(err)
	}
	if got := s.greeting(t); got != "good night" {
		t.Errorf("in the end the greeting is %q", got)
	}
}

// background runs a command and delivers how it went.
func (s *liveSite) background(t *testing.T, args ...string) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := s.Command(context.WithoutCancel(t.Context()), args...)
		done <- err
	}()
	return done
}
