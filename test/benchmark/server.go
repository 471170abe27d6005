package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const token = "benchmark"

// server is a running API server with everything that belongs to it.
type server struct {
	dir    string
	config *rest.Config
	ready  time.Duration
	procs  []*exec.Cmd
}

// start runs a command in a process group of its own, with its output in a file.
func (s *server) start(log, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	out, err := os.Create(log)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.procs = append(s.procs, cmd)
	return nil
}

// stop ends the processes in reverse order of their start.
func (s *server) stop() {
	for i := len(s.procs) - 1; i >= 0; i-- {
		p := s.procs[i]
		_ = p.Process.Signal(syscall.SIGTERM)
		timer := time.AfterFunc(20*time.Second, func() { _ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL) })
		_ = p.Wait()
		timer.Stop()
	}
}

// awaitReady waits until /readyz succeeds.
func (s *server) awaitReady(ctx context.Context, since time.Time, log string) error {
	client, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		body, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err == nil && string(body) == "ok" {
			s.ready = time.Since(since)
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready: %v (see %s)", err, log)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func startCatena(ctx context.Context, dir string, o options) (*server, error) {
	port, err := prepare(dir)
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir, config: clientConfig(port)}
	log := filepath.Join(dir, "catena.log")
	began := time.Now()
	args := []string{"serve", "--config", "configs/catena.yaml",
		"--data-dir", filepath.Join(dir, "data"),
		"--set", "pluginDirs=" + filepath.Join(o.bin, "plugins"),
		"--set", "apiserver.secure-port=" + strconv.Itoa(port),
		"--set", "apiserver.token-auth-file=" + filepath.Join(dir, "tokens")}
	if o.profiles != "" {
		args = append(args, "--set", "apiserver.debug-socket-path="+debugSocket(dir))
	}
	err = s.start(log, filepath.Join(o.bin, "catena"), args...)
	if err == nil {
		err = s.awaitReady(ctx, began, log)
	}
	if err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func startKubeAPIServer(ctx context.Context, dir string, o options) (*server, error) {
	port, err := prepare(dir)
	if err != nil {
		return nil, err
	}
	key := filepath.Join(dir, "sa.key")
	if err := writeKey(key); err != nil {
		return nil, err
	}
	s := &server{dir: dir, config: clientConfig(port)}
	log := filepath.Join(dir, "kube-apiserver.log")
	etcd, peer, err := twoPorts()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	err = s.start(filepath.Join(dir, "etcd.log"), filepath.Join(o.bin, "tools", "etcd"), "--data-dir", filepath.Join(dir, "etcd"),
		"--listen-client-urls", etcd, "--advertise-client-urls", etcd, "--listen-peer-urls", peer,
		"--heartbeat-interval", "10", "--election-timeout", "100")
	if err == nil {
		err = s.start(log, filepath.Join(o.bin, "tools", "kube-apiserver"),
			"--etcd-servers", etcd, "--secure-port", strconv.Itoa(port), "--cert-dir", filepath.Join(dir, "certs"),
			"--token-auth-file", filepath.Join(dir, "tokens"), "--authorization-mode", "Node,RBAC",
			"--service-account-issuer", "https://kubernetes.default.svc.cluster.local",
			"--service-account-key-file", key, "--service-account-signing-key-file", key,
			"--service-cluster-ip-range", "10.0.0.0/24")
	}
	if err == nil {
		err = s.awaitReady(ctx, began, log)
	}
	if err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// prepare makes the directory with the token file and returns a free port.
func prepare(dir string) (int, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, err
	}
	line := token + `,benchmark,benchmark,"system:masters"` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "tokens"), []byte(line), 0o600); err != nil {
		return 0, err
	}
	return freePort()
}

func clientConfig(port int) *rest.Config {
	return &rest.Config{
		Host: "https://127.0.0.1:" + strconv.Itoa(port), BearerToken: token,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: -1,
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func twoPorts() (a, b string, err error) {
	for _, s := range []*string{&a, &b} {
		port, err := freePort()
		if err != nil {
			return "", "", err
		}
		*s = "http://127.0.0.1:" + strconv.Itoa(port)
	}
	return a, b, nil
}

func writeKey(path string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	return os.WriteFile(path, pem.EncodeToMemory(block), 0o600)
}

// tree returns the processes of the server with all their descendants.
func (s *server) tree() []int {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		if pid, fields := procStat(path); fields != nil {
			ppid, _ := strconv.Atoi(fields[1])
			children[ppid] = append(children[ppid], pid)
		}
	}
	var all []int
	var walk func(int)
	walk = func(pid int) {
		all = append(all, pid)
		for _, c := range children[pid] {
			walk(c)
		}
	}
	for _, p := range s.procs {
		walk(p.Process.Pid)
	}
	return all
}

// procStat returns the fields of a stat file from the process state on.
func procStat(path string) (int, []string) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, nil
	}
	pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
	return pid, strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
}

// cpu is the processor time that the server's processes have used.
func (s *server) cpu() time.Duration {
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux port of Go
	var sum time.Duration
	for _, pid := range s.tree() {
		if _, f := procStat(fmt.Sprintf("/proc/%d/stat", pid)); f != nil {
			user, _ := strconv.Atoi(f[11])
			system, _ := strconv.Atoi(f[12])
			sum += time.Duration(user+system) * tick
		}
	}
	return sum
}

// memory is the proportional set size of the server's processes, in bytes.
func (s *server) memory() int64 {
	var sum int64
	for _, pid := range s.tree() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			continue
		}
		lines := bufio.NewScanner(bytes.NewReader(b))
		for lines.Scan() {
			if f := strings.Fields(lines.Text()); len(f) > 1 && f[0] == "Pss:" {
				kib, _ := strconv.ParseInt(f[1], 10, 64)
				sum += kib << 10
			}
		}
	}
	return sum
}
