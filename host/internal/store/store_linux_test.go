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
	"syscall"
	"testing"
	"time"
)

func init() {
	childModes["mounted"] = runMounted
	childModes["fill"] = fillStore
	childModes["verify"] = verifyStore
}

// Every local user could reach a TCP port or an abstract socket.
func TestNoOpenSockets(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	cmd := child("hold", dir)
	if lines := startChild(t, cmd); !lines.Scan() {
		t.Fatal("the store was not opened")
	}
	owned := socketInodes(t, cmd.Process.Pid)
	paths := 0
	for _, socket := range listening(t) {
		if !owned[socket.inode] {
			continue
		}
		if socket.name != filepath.Join(dir, "etcd.sock") {
			t.Errorf("the server listens on %s socket %q", socket.family, socket.name)
		}
		paths++
	}
	if paths != 1 {
		t.Errorf("the server listens on %d sockets, want its own one", paths)
	}
}

type listener struct{ family, name, inode string }

// listening returns the machine's listening sockets; abstract names begin with @.
func listening(t *testing.T) []listener {
	t.Helper()
	var found []listener
	for _, family := range []string{"tcp", "tcp6"} {
		for _, f := range procLines(t, family) {
			if f[3] == "0A" {
				found = append(found, listener{family, f[1], f[9]})
			}
		}
	}
	for _, f := range procLines(t, "unix") {
		const accepting = "00010000"
		if f[3] == accepting {
			found = append(found, listener{"unix", strings.Join(f[7:], " "), f[6]})
		}
	}
	return found
}

func procLines(t *testing.T, family string) [][]string {
	t.Helper()
	text, err := os.ReadFile("/proc/net/" + family)
	if err != nil {
		t.Fatal(err)
	}
	var lines [][]string
	for _, line := range strings.Split(string(text), "\n")[1:] {
		if fields := strings.Fields(line); len(fields) > 0 {
			lines = append(lines, fields)
		}
	}
	return lines
}

func socketInodes(t *testing.T, pid int) map[string]bool {
	t.Helper()
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	inodes := map[string]bool{}
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil {
			continue // closed in the meantime
		}
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return inodes
}

func TestReadOnlyDir(t *testing.T) {
	t.Parallel()
	out := mounted(t, "ro", "hold")
	if !strings.Contains(out, "cannot be written") || !strings.Contains(out, "read-only file system") {
		t.Errorf("error is %q", out)
	}
}

func TestFullDir(t *testing.T) {
	t.Parallel()
	out := mounted(t, "size=1m", "hold")
	if !strings.Contains(out, "start embedded etcd") || !strings.Contains(out, "no space left on device") {
		t.Errorf("error is %q", out)
	}
}

// A directory that fills up ends the server with an error, not with the process, and
// whatever was acknowledged is there when space is.
func TestDirFillsUp(t *testing.T) {
	t.Parallel()
	// The ballast takes 48 MiB and etcd two WAL files of 64 MiB each, the second of them
	// while it starts: the rest is for what the test writes.
	out := mounted(t, "size=200m", "fill")
	if !strings.Contains(out, "failure: embedded etcd: ") || !strings.Contains(out, "no space left on device") {
		t.Errorf("output is %q", out)
	}
	if !strings.Contains(out, "all acknowledged writes are there") {
		t.Errorf("output is %q", out)
	}
}

// mounted runs a mode on a file system of its own and returns what it printed.
func mounted(t *testing.T, mountOptions, mode string) string {
	t.Helper()
	cmd := child("mounted", newDir(t), mountOptions, mode)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || strings.Contains(string(out), "cannot mount") {
		t.Skipf("this machine lets tests mount nothing: %v %s", err, out)
	}
	return string(out)
}

// runMounted DIR OPTIONS MODE: runs a mode on a file system of its own at DIR.
func runMounted(args []string) error {
	dir, options, mode := args[0], args[1], args[2]
	flags := uintptr(0)
	if options == "ro" {
		options, flags = "", syscall.MS_RDONLY
	}
	if err := syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("cannot mount: %w", err)
	}
	if options != "" {
		options += ","
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", flags, options+"mode=0700"); err != nil {
		return fmt.Errorf("cannot mount: %w", err)
	}
	cmd := child(mode, dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil || mode != "fill" {
		return err
	}
	if err := os.Remove(filepath.Join(dir, "ballast")); err != nil {
		return err
	}
	cmd = exec.Command(cmd.Path, dir)
	cmd.Env = append(os.Environ(), modeEnv+"=verify")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// fillStore DIR: writes until the disk is full, and lists what was acknowledged in a file.
func fillStore(args []string) error {
	dir := args[0]
	if err := os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, 48<<20), 0o600); err != nil {
		return err
	}
	acked, err := os.Create(filepath.Join(dir, "acked"))
	if err != nil {
		return err
	}
	s, err := Open(context.Background(), optionsFor(dir))
	if err != nil {
		return err
	}
	client, err := dialStore(optionsFor(dir))
	if err != nil {
		return err
	}
	value := strings.Repeat("x", 256<<10)
	for i := 0; ; i++ { // the disk is small
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		_, err := client.Put(ctx, fmt.Sprintf("key-%d", i), value)
		cancel()
		if err == nil {
			fmt.Fprintf(acked, "key-%d\n", i)
			continue
		}
		select { // a busy machine can be late as well
		case err := <-s.Failed():
			fmt.Println("failure:", err)
			return nil
		case <-time.After(time.Second):
		}
	}
}

// verifyStore DIR: checks that everything acknowledged is there.
func verifyStore(args []string) error {
	_, err := Open(context.Background(), optionsFor(args[0]))
	if err != nil {
		return err
	}
	client, err := dialStore(optionsFor(args[0]))
	if err != nil {
		return err
	}
	acked, err := os.Open(filepath.Join(args[0], "acked"))
	if err != nil {
		return err
	}
	count := 0
	for lines := bufio.NewScanner(acked); lines.Scan(); count++ {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		got, err := client.Get(ctx, lines.Text())
		cancel()
		if err != nil {
			return err
		}
		if got.Count != 1 {
			return fmt.Errorf("%s was acknowledged and is lost", lines.Text())
		}
	}
	if count == 0 {
		return errors.New("nothing was acknowledged")
	}
	fmt.Println("all acknowledged writes are there:", count)
	return nil
}
