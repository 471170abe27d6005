//go:build linux

package process

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Every failed start is reported in one line with the names of the stage and the binary, and
// leaves no process, file or goroutine.
func TestStartFails(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		mode, name string
		timeout    time.Duration
		want       []string
		log        []string
	}{
		{mode: "exit", want: []string{"exited with status 3 before the handshake"},
			log: []string{"first words", "[ERROR] cannot read the token path=/nowhere"}},
		{mode: "panic", want: []string{"exited with status 2 before the handshake"}, log: []string{"panic: boom", "goroutine 1"}},
		{mode: "garbage", want: []string{`"Welcome to my stage!"`, "logs belong on standard error"}},
		{mode: "garbage-exit", want: []string{`"usage: ls [FILE]"`, "no Catena stage"}},
		{mode: "endless-line", want: []string{`"xxx`, "no Catena stage"}},
		{mode: "silent", timeout: 300 * time.Millisecond, want: []string{"did not send its handshake within 300ms", "stages.test.startTimeout"}},
		{mode: "suspended", timeout: 300 * time.Millisecond, want: []string{"did not send its handshake within 300ms"}},
		{mode: "closes", want: []string{"closed its standard output before the handshake"}},
		{mode: "tcp", want: []string{"listens on tcp 127.0.0.1:1", "PLUGIN_UNIX_SOCKET_DIR"}},
		{mode: "forges", want: []string{"certificate"}},
		{mode: "refuses", want: []string{"Describe", "no such file"}},
		{mode: "other-process", want: []string{"control socket", "does not belong to process"}},
		{mode: "exits-after-handshake", want: []string{"exited with status 0 right after the handshake"}},
		{mode: "protocol", want: []string{"speaks version 9 of the stage protocol, this host speaks 1", "SDK"}},
		{mode: "netrpc", want: []string{"does not speak gRPC"}},
		{mode: "nostage", want: []string{"no Catena stage", "Describe"}},
		{mode: "good", name: "-", want: []string{"reports no name"}},
		{mode: "good", name: "other", want: []string{`reports the name "other"`, `"test"`}},
		{mode: "hangs", timeout: 6 * time.Second, want: []string{"did not respond to Describe within 6s"}},
		{mode: "suspends", timeout: 6 * time.Second, want: []string{"did not respond to Describe within 6s"}},
		{mode: "dies", want: []string{"exited with status 4 right after the handshake"}},
	} {
		t.Run(tc.mode+tc.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, tc.mode)
			if tc.timeout != 0 {
				f.spec.StartTimeout = tc.timeout
			}
			if tc.name != "" {
				f.spec.Env[envName] = strings.Trim(tc.name, "-")
			}
			p, err := Start(t.Context(), f.spec)
			if err == nil {
				p.Kill(t.Context())
				t.Fatal("no error")
			}
			first, rest, _ := strings.Cut(err.Error(), "\n")
			for _, want := range append(tc.want, `stage "test"`, f.spec.Binary) {
				if !strings.Contains(first, want) {
					t.Errorf("%q lacks %q", first, want)
				}
			}
			for _, want := range tc.log {
				if !strings.Contains(rest, want) {
					t.Errorf("the lines after the first lack %q:\n%s", want, rest)
				}
			}
			if n := strings.Count(rest, "\n"); n >= tailLines {
				t.Errorf("%d lines of log", n+1)
			}
			if !strings.HasPrefix(first, `stage "test": `) {
				t.Errorf("%q does not begin with the stage", first)
			}
			t.Log(err)
		})
	}
}

func TestKernelRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, want string
		content    []byte
	}{
		{"no interpreter", "its interpreter or dynamic loader is missing", []byte("#!/no/such/interpreter\n")},
		{"half a program", "no program that this machine can run", program(t, 0)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, "good")
			f.spec.Binary = write(t, filepath.Join(t.TempDir(), BinaryPrefix+"test"), tc.content, 0o755)
			_, err := Start(t.Context(), f.spec)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), f.spec.Binary+": cannot be started") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestSpecIsChecked(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		want   string
		change func(*Spec)
	}{
		{`environment variable "A=B": a name must not`, func(s *Spec) { s.Env["A=B"] = "" }},
		{`environment variable "A": its value holds`, func(s *Spec) { s.Env["A"] = "x\x00" }},
		{"set runtimeDir to a directory with at most", func(s *Spec) { s.RuntimeDir = "/" + strings.Repeat("d", 80) }},
		{"runtime directory: stat /no/such: no such file", func(s *Spec) { s.RuntimeDir = "/no/such" }},
		{"catena-stage-none: no such file", func(s *Spec) { s.Binary = "/catena-stage-none" }},
	} {
		f := newFixture(t, "good")
		tc.change(&f.spec)
		_, err := Start(t.Context(), f.spec)
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), `stage "test": `) {
			t.Errorf("got %v, want %q", err, tc.want)
		}
	}
}
