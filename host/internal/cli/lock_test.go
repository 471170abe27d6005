package cli

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/catena-dev/catena/host/internal/declared"
	"github.com/catena-dev/catena/host/internal/lockfile"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/process/processtest"
)

// lockSite is a host whose stage is locked, and leaves a mark in a file when it is executed.
type lockSite struct {
	*life
	mark string
	seen int // what of that file executed has returned
}

func newLockSite(t *testing.T, stageConfig string) *lockSite {
	t.Helper()
	l := newLife(t)
	s := &lockSite{life: l, mark: filepath.Join(l.dir, "executed")}
	s.configure(t, stageConfig)
	s.install(t, s.binary(), "1")
	return s
}

func (s *lockSite) configure(t *testing.T, stageConfig string) {
	t.Helper()
	text := "apiVersion: catena.dev/v1alpha1\nkind: HostConfiguration\npluginDirs: [" + s.plugins + "]\nlog: {format: json}\n" +
		"apiserver: {" + lifeFlags + "}\nholdTimeout: 1m\nstages:\n  life:\n    isolation: off\n    drainSpread: 0s\n    env: {" + envLife + ": 'life:" + s.notes + "'}\n" + stageConfig
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (s *lockSite) binary() string { return filepath.Join(s.plugins, "catena-stage-life") }

func (s *lockSite) lockFile() string { return filepath.Join(s.dir, "catena.lock") }

// install puts a version of the stage in place.
func (s *lockSite) install(t *testing.T, path, version string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\necho %s >> '%s'\nexec '%s'\n", version, s.mark, self)
	err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), processtest.WriteProgram(path+".new", []byte(script)), os.Rename(path+".new", path))
	if err != nil {
		t.Fatal(err)
	}
	c, err := process.ReadContents(path)
	if err != nil {
		t.Fatal(err)
	}
	return c.SHA256
}

// executed returns which versions have been executed since it was last called.
func (s *lockSite) executed(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(s.mark)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1] // what is being written comes in the next call
	text, s.seen = text[s.seen:], len(text)
	versions := strings.Fields(string(text))
	slices.Sort(versions)
	return slices.Compact(versions)
}

// refuses checks that a command fails with these words, and that nothing was executed.
func (s *lockSite) refuses(t *testing.T, want []string, args ...string) {
	t.Helper()
	out, errOut, err := command(t, append(args, "--data-dir", filepath.Join(s.dir, "data"))...)
	if err == nil && args[0] != "plugins" {
		t.Errorf("catena %s succeeds: %s", args[0], out)
	}
	for _, w := range want {
		if !strings.Contains(out+errOut, w) {
			t.Errorf("catena %s: %q is not in\n%s%s", strings.Join(args, " "), w, out, errOut)
		}
	}
	if versions := s.executed(t); len(versions) > 0 {
		t.Errorf("catena %s has executed version %s", strings.Join(args, " "), versions)
	}
}

// does checks that a command succeeds and prints these words.
func (s *lockSite) does(t *testing.T, want []string, args ...string) string {
	t.Helper()
	out, errOut, err := command(t, append(args, "--data-dir", filepath.Join(s.dir, "data"))...)
	if err != nil {
		t.Fatalf("catena %s: %v\n%s%s", strings.Join(args, " "), err, out, errOut)
	}
	for _, w := range want {
		if !strings.Contains(out, w) {
			t.Errorf("catena %s: %q is not in\n%s", strings.Join(args, " "), w, out)
		}
	}
	return out
}

// A file is executed only if the lock has it, whatever command would do so.
func TestWhatIsNotLockedIsNotExecuted(t *testing.T) {
	t.Parallel()
	s := newLockSite(t, "")
	first := s.install(t, s.binary(), "1")
	everywhere := func(want ...string) {
		t.Helper()
		want = append(want, `stage "life"`, s.binary(), "run catena lock life --config "+s.config)
		for _, args := range [][]string{{"serve"}, {"plugins"}, {"config", "validate"}, {"config", "validate", "--with-stages"}, {"config", "schema", "life"}} {
			s.refuses(t, want, append(args, "--config", s.config)...)
		}
	}
	everywhere("is not locked: its sha256 is "+first, "there is no "+s.lockFile())
	s.refuses(t, []string{"added life: sha256 " + first, "is out of date"}, "lock", "--check", "--config", s.config)

	s.does(t, []string{"added life: ", "sha256 " + first, "not covered: stage life also runs the interpreter /bin/sh", s.lockFile() + " written"}, "lock", "--config", s.config)
	if got := s.executed(t); !slices.Equal(got, []string{"1"}) {
		t.Errorf("lock has executed %q", got)
	}
	s.does(t, []string{"is up to date"}, "lock", "--check", "--config", s.config)
	if got := s.executed(t); len(got) > 0 {
		t.Errorf("lock --check has executed %q", got)
	}
	s.does(t, []string{"life"}, "plugins", "--config", s.config)
	s.does(t, nil, "config", "validate", "--with-stages", "--config", s.config)
	s.executed(t)

	second := s.install(t, s.binary(), "2")
	everywhere("is not locked: its sha256 is "+second, "has "+first)
	if err := os.WriteFile(filepath.Join(s.plugins, "module.py"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.install(t, s.binary(), "1")
	everywhere("and " + s.lockFile() + " has " + first)

	if err := os.WriteFile(s.lockFile(), []byte("stages: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	s.refuses(t, []string{s.lockFile()}, "serve", "--config", s.config)
	s.refuses(t, []string{s.lockFile()}, "lock", "--config", s.config)
	s.configure(t, "    lock: off\n")
	s.does(t, []string{"life"}, "plugins", "--config", s.config)
}

// What a running host is asked to execute is checked as at the start.
func TestLockOfARunningHost(t *testing.T) {
	t.Parallel()
	s := newLockSite(t, "")
	s.does(t, nil, "lock", "--config", s.config)
	s.start(t)
	s.untilSignal(t, "HasBeenReady")
	serves := func(version string) {
		t.Helper()
		s.until(t, "generation of version "+version, func() bool {
			st := s.status(t).Stages[0]
			return st.State == "serving" && slices.Contains(s.executed(t), version)
		})
	}
	kill := func() {
		t.Helper()
		if err := syscall.Kill(s.status(t).Stages[0].PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	serves("1")

	// The file in place is replaced.
	second := s.install(t, s.binary(), "2")
	s.refuses(t, []string{"is not locked: its sha256 is " + second, "catena lock life"}, "swap", "life")
	s.refuses(t, []string{"is not locked: its sha256 is " + second}, "reload")
	kill()
	s.until(t, "restart that is refused", func() bool {
		return strings.Contains(strings.Join(s.logged("catena", "stage could not be restarted, trying again", "error"), ""), "is not locked: its sha256 is "+second)
	})
	if got := s.executed(t); len(got) > 0 {
		t.Errorf("the restart has executed %q", got)
	}
	s.does(t, []string{"changed life: "}, "lock", "life")
	serves("2")

	// Another file is swapped to.
	other := filepath.Join(s.dir, "other", "catena-stage-life")
	third := s.install(t, other, "3")
	s.refuses(t, []string{"is not locked", "run catena lock life --binary " + other}, "swap", "life", "--binary", other)
	s.refuses(t, []string{"its sha256 is " + third, "--sha256 is " + second}, "swap", "life", "--binary", other, "--sha256", second)
	s.does(t, []string{"swapped"}, "swap", "life", "--binary", other, "--sha256", strings.ToUpper(third))
	serves("3")
	s.does(t, nil, "swap", "life", "--promote") // a kill would be the way back
	kill()                                      // the digest stays approved
	serves("3")
	s.install(t, other, "4")
	kill()
	s.until(t, "restart that is refused", func() bool {
		return strings.Contains(strings.Join(s.logged("catena", "stage could not be restarted, trying again", "error"), ""), "run catena lock life --binary "+other)
	})
	s.does(t, []string{"added life: "}, "lock", "life", "--binary", other)
	serves("4")
	s.does(t, []string{"swapped life"}, "reload")
	serves("2")

	// A pin refuses whatever is approved.
	pin, err := process.Digest(s.binary())
	if err != nil {
		t.Fatal(err)
	}
	s.configure(t, "    sha256: "+pin+"\n")
	s.does(t, nil, "reload")
	s.executed(t)
	for range 2 {
		s.refuses(t, []string{"the configuration wants " + pin}, "swap", "life", "--binary", other)
	}
}

// A swap that is rolled back goes on with a file that the lock may not have any more.
func TestRollbackAfterTheLockHasGoneOn(t *testing.T) {
	t.Parallel()
	s := newLockSite(t, "")
	s.does(t, nil, "lock", "--config", s.config)
	s.start(t)
	s.untilSignal(t, "HasBeenReady")
	lock := lockfile.Lock{}
	if err := lock.Write(s.lockFile()); err != nil {
		t.Fatal(err)
	}
	s.executed(t)
	if err := syscall.Kill(s.status(t).Stages[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.until(t, "restart", func() bool { return slices.Contains(s.executed(t), "1") })
	s.refuses(t, []string{"is not locked"}, "swap", "life")
}

// The watcher uses a new file once the lock has it.
func TestWatchPluginsAndTheLock(t *testing.T) {
	t.Parallel()
	s := newLockSite(t, "watchPlugins: true\n")
	s.does(t, nil, "lock", "--config", s.config)
	s.start(t)
	s.untilSignal(t, "HasBeenReady")
	s.executed(t)
	s.install(t, s.binary(), "2")
	s.until(t, "refusal", func() bool {
		errs := s.logged("catena", "changed plugin is not used, the stage goes on with the old one", "error")
		return strings.Contains(strings.Join(errs, ""), "is not locked")
	})
	if got := s.executed(t); len(got) > 0 {
		t.Errorf("the watcher has executed %q", got)
	}
	s.does(t, nil, "lock")
	s.until(t, "swap", func() bool { return len(s.logged("catena", "stage swapped", "to")) > 0 })
}

// The lock keeps what other machines and other commands have put into it, and loses what the
// configuration no longer has.
func TestLockChanges(t *testing.T) {
	t.Parallel()
	s := newLockSite(t, "  off: {lock: off, disabled: true}\n")
	entry := func(stage, platform, digit string) lockfile.Entry {
		return lockfile.Entry{Stage: stage, Platform: platform, Version: "v1", SHA256: strings.Repeat(digit, 64)}
	}
	before := lockfile.New(entry("life", declared.Platform, "a"), entry("life", "plan9/arm", "b"), entry("gone", declared.Platform, "c"), entry("off", declared.Platform, "d"))
	if err := before.Write(s.lockFile()); err != nil {
		t.Fatal(err)
	}
	digest := s.install(t, s.binary(), "1")
	out := s.does(t, []string{"changed life: v1 sha256 " + strings.Repeat("a", 64) + " → ", "removed gone: v1 sha256 " + strings.Repeat("c", 64)}, "lock", "--config", s.config)
	if strings.Count(out, "\n") != 4 {
		t.Errorf("printed\n%s", out)
	}
	after, err := lockfile.Read(s.lockFile())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range after.Entries {
		got = append(got, e.Stage+" "+e.Platform)
	}
	if want := []string{"life " + declared.Platform, "life plan9/arm", "off " + declared.Platform}; !slices.Equal(got, want) || after.Entries[0].SHA256 != digest {
		t.Errorf("entries are %q, want %q", got, want)
	}

	var result lockResult
	other := filepath.Join(s.dir, "other", "catena-stage-life")
	second := s.install(t, other, "2")
	out = s.does(t, nil, "lock", "life", "--binary", other, "-o", "json", "--config", s.config)
	if err := json.Unmarshal([]byte(out), &result); err != nil || !result.Written || len(result.Changes) != 1 || result.Changes[0].Old != nil || result.Changes[0].New.SHA256 != second {
		t.Errorf("%v in %s", err, out)
	}
	if after, err = lockfile.Read(s.lockFile()); err != nil || len(after.Digests("life", declared.Platform)) != 2 {
		t.Errorf("got %+v, %v", after, err)
	}
	s.does(t, []string{"removed life: "}, "lock", "life", "--config", s.config)
	s.executed(t)
	s.refuses(t, []string{"needs the name of the one stage"}, "lock", "--binary", other, "--config", s.config)
	s.configure(t, "    lock: off\n")
	s.refuses(t, []string{"stages.life.lock: is off"}, "lock", "life", "--config", s.config)
	s.refuses(t, []string{"which is not given"}, "lock", "--set", "stages.life={}")
}

// A signature is checked before anything is executed, and is of the file, or of the digest of a
// script.
func TestLockVerifiesSignatures(t *testing.T) {
	t.Parallel()
	s := newLockSite(t, "")
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(s.dir, "key.pem")
	put := func(path string, data []byte) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(key, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	args := []string{"lock", "--config", s.config, "--verify-key", key}
	signature := s.binary() + ".sig"
	s.refuses(t, []string{`stage "life"`, s.binary() + " is not signed", signature}, args...)
	put(signature, ed25519.Sign(private, []byte("another")))
	s.refuses(t, []string{s.binary(), signature + " is not one of this file by that key"}, args...)
	if _, err := os.Stat(s.lockFile()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock was written: %v", err)
	}
	digest := s.install(t, s.binary(), "1")
	put(signature, []byte(base64.StdEncoding.EncodeToString(ed25519.Sign(private, []byte(digest)))))
	s.does(t, []string{"written"}, args...)

	// A program is signed by its bytes.
	program := filepath.Join(pluginDir(t, "life"), "catena-stage-life")
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	put(program+".sig", ed25519.Sign(private, data))
	s.does(t, []string{"added life: "}, "lock", "life", "--binary", program, "--config", s.config, "--verify-key", key)
}

// LD_PRELOAD would run other code than what is locked.
func TestEnvironmentOfTheDynamicLoader(t *testing.T) {
	t.Parallel()
	s := newLockSite(t, "")
	text, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	changed := regexp.MustCompile(`env: \{`).ReplaceAll(text, []byte("env: {LD_PRELOAD: /tmp/x.so, "))
	if err := os.WriteFile(s.config, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	s.refuses(t, []string{s.config + ":11: stages.life.env.LD_PRELOAD: the dynamic loader would run other code"}, "serve", "--config", s.config)
}

// Values that are secret are not shown: variables, and what the schema of the stage says.
func TestConfigShowMasksSecrets(t *testing.T) {
	t.Parallel()
	s := newLockSite(t, "    lock: off\n    config: {greeting: hello, password: hunter2, hang: ''}\n")
	out, errOut, err := command(t, "config", "show", "--config", s.config)
	for _, want := range []string{`stages\.life\.config\.greeting +hello`, `stages\.life\.config\.password +\*\*\*`, `stages\.life\.env\.` + envLife + ` +\*\*\*`} {
		if err != nil || !regexp.MustCompile(want).MatchString(out) || strings.Contains(out, "hunter2") {
			t.Errorf("no %s in\n%s%s%v", want, out, errOut, err)
		}
	}
	if out, _, err = command(t, "config", "show", "--config", s.config, "-o", "json"); err != nil || strings.Contains(out, "hunter2") || strings.Contains(out, s.notes) {
		t.Errorf("as JSON:\n%s%v", out, err)
	}
	s.executed(t)
	if out := s.does(t, []string{"hunter2", s.notes}, "config", "show", "--show-secrets", "--config", s.config); len(s.executed(t)) > 0 {
		t.Errorf("the stage is executed:\n%s", out)
	}

	// A stage that may not be executed cannot say what is secret.
	s.configure(t, "    config: {greeting: hello, password: hunter2}\n")
	out, errOut, err = command(t, "config", "show", "--config", s.config)
	if err != nil || strings.Contains(out, "hunter2") || strings.Contains(out, "hello") || !strings.Contains(errOut, "stages.life.config is not shown") || len(s.executed(t)) > 0 {
		t.Errorf("not locked:\n%s%s%v", out, errOut, err)
	}
}

// What a locked stage needs is in the lock file: it is refused without being executed.
func TestNeedsOfALockedStage(t *testing.T) {
	t.Parallel()
	s := newLockSite(t, "")
	s.does(t, nil, "lock", "--config", s.config)
	lock, err := lockfile.Read(s.lockFile())
	if err != nil {
		t.Fatal(err)
	}
	lock.Entries[0].Needs = []string{"claims /api/**", "network"}
	if err := lock.Write(s.lockFile()); err != nil {
		t.Fatal(err)
	}
	s.executed(t)
	want := []string{s.config + ":8: stages.life.grants: the stage needs to claim /api/**, network connections", `grants: {claims: ["/api/**"], network: true}`}
	s.refuses(t, want, "config", "validate", "--config", s.config)
	s.refuses(t, want, "serve", "--config", s.config)
	if got := s.executed(t); len(got) > 0 {
		t.Errorf("%q were executed", got)
	}
	s.configure(t, "    grants: {claims: [\"/**\"], network: true}\n")
	s.does(t, []string{"is valid"}, "config", "validate", "--config", s.config)
}
