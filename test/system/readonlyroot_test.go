package system

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// readOnly runs a program in a mount namespace of its own in which the directory $volume can be written and no other: as
// an unprivileged container with one volume sees it. user has the words of setpriv, or is empty for root.
const readOnly = `#!/bin/sh
exec unshare --mount --propagation private sh -ec '
mount --bind "$0" "$0"
for dir in / /run /tmp /dev/shm; do
	if mountpoint -q "$dir"; then mount -o remount,bind,ro "$dir"; fi
done
for dir in /etc /run /tmp "$0/.."; do
	if test -w "$dir"; then echo "$dir can be written"; exit 9; fi
done
exec "$@"' '%s' %s '%s' "$@"
`

// On a read-only root, with one writable directory for --cert-dir, Catena serves as any user, and leaves what
// kube-apiserver leaves there and its data directory.
func TestReadOnlyRoot(t *testing.T) {
	t.Parallel()
	if err := exec.Command("unshare", "--mount", "true").Run(); os.Geteuid() != 0 || err != nil {
		t.Skip("only root can have a mount namespace of its own:", err)
	}
	for name, user := range map[string]int{"root": 0, "ordinary user": otherUser} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := servedReadOnly(t, kubeAPIServerPath(t), user)
			got := servedReadOnly(t, asKubeAPIServer(t), user)
			if want = append(want, "catena"); !slices.Equal(got, want) {
				t.Errorf("it leaves %v, want %v", got, want)
			}
		})
	}
}

// servedReadOnly starts a program on a read-only root, stops it when it was ready, and returns the names of the files that
// it has left.
func servedReadOnly(t *testing.T, path string, user int) []string {
	t.Helper()
	k := newKubeAPIServer(t, cluster.Options{})
	program, start := filepath.Join(k.Dir, "kube-apiserver"), filepath.Join(k.Dir, "start")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var as string
	if user != 0 {
		as = fmt.Sprintf("setpriv --reuid %d --regid %[1]d --clear-groups", user)
	}
	err = errorsOf(os.Mkdir(k.CertDir(), 0o755), cluster.WriteProgram(program, text),
		cluster.WriteProgram(start, fmt.Appendf(nil, readOnly, k.CertDir(), as, program)))
	if err != nil {
		t.Fatal(err)
	}
	if err := giveAway(k.Dir, user); err != nil {
		t.Fatal(err)
	}
	if err := k.Start(t.Context(), start); err != nil {
		t.Fatal(err)
	}
	if err := k.Process().Stop(); err != nil {
		t.Error(err)
	}
	return namesIn(t, k.CertDir())
}

// newKubeAPIServer prepares a start; what it needs ends with the test.
func newKubeAPIServer(t *testing.T, o cluster.Options) *cluster.KubeAPIServer {
	t.Helper()
	k, err := cluster.NewKubeAPIServer(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() && k.Process() != nil {
			t.Log(cluster.Tail(k.Process().Log, 60))
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

// giveAway makes a user the owner of a directory and of all that is in it.
func giveAway(dir string, user int) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errorsOf(err, os.Lchown(path, user, user))
	})
}

// namesIn returns the names in a directory, sorted.
func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// Where kube-apiserver would start, Catena does: without a directory that it may write, or beside another server with
// the same one. Its own directory is one for temporary files then, which it removes.
func TestNoDataDirectory(t *testing.T) {
	t.Parallel()
	first := newKubeAPIServer(t, cluster.Options{})
	if err := first.Start(t.Context(), asKubeAPIServer(t)); err != nil {
		t.Fatal(err)
	}
	defer stopped(t, first)
	temporary, file := t.TempDir(), write(t, "file", "")
	for name, dir := range map[string]string{"used by another server": first.CertDir(), "no directory": file} {
		t.Run(name, func(t *testing.T) {
			k := newKubeAPIServer(t, cluster.Options{})
			cert := []string{"--tls-cert-file=" + filepath.Join(first.CertDir(), "apiserver.crt"), "--tls-private-key-file=" + filepath.Join(first.CertDir(), "apiserver.key")}
			start := filepath.Join(k.Dir, "start")
			script := fmt.Sprintf("#!/bin/sh\nTMPDIR='%s' exec '%s' \"$@\" --cert-dir='%s' %s\n", temporary, asKubeAPIServer(t), dir, strings.Join(cert, " "))
			if err := cluster.WriteProgram(start, []byte(script)); err != nil {
				t.Fatal(err)
			}
			if err := k.Start(t.Context(), start); err != nil {
				t.Fatal(err)
			}
			if got := namesIn(t, temporary); len(got) != 1 {
				t.Errorf("for temporary files there are %v", got)
			}
			stopped(t, k)
			if got := namesIn(t, temporary); len(got) != 0 {
				t.Errorf("it leaves %v", got)
			}
		})
	}
}

// stopped stops a server that runs.
func stopped(t *testing.T, k *cluster.KubeAPIServer) {
	t.Helper()
	if err := k.Process().Stop(); err != nil {
		t.Error(err)
	}
}
