//go:build linux

package process

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-plugin"
	"golang.org/x/sys/unix"

	"github.com/catena-dev/catena/host/internal/isolation"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// The test binary is also the plugin: with envMode set, it plays a stage that
// behaves according to the mode.
const (
	envMode = "PROCESS_TEST_MODE"
	envName = "PROCESS_TEST_NAME"
)

func TestMain(m *testing.M) {
	isolation.Dispatch()
	if mode := os.Getenv(envMode); mode != "" {
		play(mode)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func play(mode string) {
	switch mode {
	case "exit":
		fmt.Fprintln(os.Stderr, "first words")
		fmt.Fprintln(os.Stderr, `{"@level":"error","@message":"cannot read the token","path":"/nowhere"}`)
		os.Exit(3)
	case "panic":
		panic("boom")
	case "garbage":
		fmt.Println("Welcome to my stage!")
		time.Sleep(time.Hour)
	case "garbage-exit":
		fmt.Println("usage: ls [FILE]")
	case "silent":
		time.Sleep(time.Hour)
	case "closes":
		_ = os.Stdout.Close()
		time.Sleep(time.Hour)
	case "endless-line":
		for {
			fmt.Print(strings.Repeat("x", 1000))
		}
	case "suspended":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		time.Sleep(time.Hour)
	case "tcp":
		fmt.Printf("1|%d|tcp|127.0.0.1:1|grpc|%s\n", stagev1.ProtocolVersion, strings.Repeat("A", 80))
		time.Sleep(time.Hour)
	case "forges": // its certificate is none
		printHandshake(strings.Repeat("A", 80))
		time.Sleep(time.Hour)
	case "refuses": // nothing listens on the socket that it names
		printHandshake(certificate())
		time.Sleep(time.Hour)
	case "exits-after-handshake":
		printHandshake(certificate())
	case "host":
		playHost()
	case "ends-orphans":
		playEndOrphans()
	case "confined":
		playConfined()
	case "isolating-host":
		playIsolatingHost()
	case "other-process": // a process outside of the group listens on the socket that it names
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), envMode+"=listens")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
		out, _ := cmd.StdoutPipe()
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		_, _ = out.Read(make([]byte, 1))
		printHandshake("")
		time.Sleep(time.Hour)
	case "listens":
		_, err := net.Listen("unix", os.Getenv(plugin.EnvUnixSocketDir)+"/none")
		fmt.Println(err)
		time.Sleep(time.Hour)
	default:
		serve(mode)
	}
}

func printHandshake(cert string) {
	fmt.Printf("1|%d|unix|%s/none|grpc|%s\n", stagev1.ProtocolVersion, os.Getenv(plugin.EnvUnixSocketDir), cert)
}

// certificate is one as go-plugin's side of a stage would send it.
func certificate() string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return base64.RawStdEncoding.EncodeToString(der)
}

// playHost starts a stage and prints its process id.
func playHost() {
	dir, self := os.Args[1], os.Args[2]
	ln, err := NewListener(dir, "test")
	if err != nil {
		panic(err)
	}
	p, err := Start(context.Background(), Spec{
		Stage: "test", Binary: self, Listener: ln, RuntimeDir: dir, Env: map[string]string{envMode: os.Args[3]},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(p.PID())
	time.Sleep(time.Hour)
}

func serve(mode string) {
	handshake := stagev1.Handshake()
	config := &plugin.ServeConfig{
		Plugins:    stagev1.Plugins(&testStage{mode: mode, stderr: os.Stderr}),
		GRPCServer: plugin.DefaultGRPCServer,
	}
	switch mode {
	case "protocol":
		handshake.ProtocolVersion = 9
	case "netrpc":
		config.GRPCServer = nil
	case "plain":
		_ = os.Unsetenv("PLUGIN_CLIENT_CERT")
	case "nostage":
		config.Plugins = stagev1.Plugins(stagev1.UnimplementedStageServer{})
	case "watches-parent":
		// Otherwise the kernel would end the process first.
		_ = unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0)
		go watchParent()
	}
	config.HandshakeConfig = handshake
	plugin.Serve(config)
	if mode == "lingers" {
		time.Sleep(time.Hour)
	}
}

type testStage struct {
	stagev1.UnimplementedStageServer
	mode   string
	stderr *os.File // the process' own: go-plugin replaces os.Stderr
}

func (s *testStage) Describe(_ context.Context, _ *stagev1.DescribeRequest) (*stagev1.DescribeResponse, error) {
	switch s.mode {
	case "hangs":
		time.Sleep(time.Hour) // a response at the deadline could be in time
	case "suspends":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		time.Sleep(time.Hour)
	case "dies":
		os.Exit(4)
	case "environment":
		return &stagev1.DescribeResponse{Name: "test", Summary: strings.Join(os.Environ(), "\n")}, nil
	case "grandchild", "daemon":
		pid, err := s.startGrandchild()
		return &stagev1.DescribeResponse{Name: "test", Version: strconv.Itoa(pid)}, err
	case "tries":
		return &stagev1.DescribeResponse{Name: "test", Summary: tryAll()}, nil
	case "floods":
		go s.flood()
	case "serves":
		go s.serveHTTP()
	}
	name := "test"
	if n, ok := os.LookupEnv(envName); ok {
		name = n
	}
	return &stagev1.DescribeResponse{Name: name, Version: "v0.1.0"}, nil
}

// startGrandchild starts a process that holds the standard error of the stage, in
// the group of the stage or, as a daemon, in its own session.
func (s *testStage) startGrandchild() (int, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{envMode + "=silent"}
	cmd.Stderr = s.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: s.mode == "daemon"}
	err := cmd.Start()
	return cmd.Process.Pid, err
}

func (s *testStage) flood() {
	line := []byte(strings.Repeat("noise ", 20) + "\n")
	for {
		_, _ = s.stderr.Write(line)
	}
}

// watchParent ends the process when the host has ended, as the protocol demands.
func watchParent() {
	fd, _ := strconv.Atoi(os.Getenv(stagev1.EnvParent))
	_, _ = os.NewFile(uintptr(fd), "parent").Read(make([]byte, 1))
	os.Exit(0)
}

func (s *testStage) serveHTTP() {
	fd, _ := strconv.Atoi(os.Getenv(stagev1.EnvListener))
	ln, err := net.FileListener(os.NewFile(uintptr(fd), "data"))
	if err != nil {
		panic(err)
	}
	_ = http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, os.Getpid())
	}))
}

// Configure does what is in its configuration.
func (s *testStage) Configure(ctx context.Context, r *stagev1.ConfigureRequest) (*stagev1.ConfigureResponse, error) {
	switch string(r.Config) {
	case "panic":
		panic("no such table")
	case "print":
		fmt.Println("printed to stdout")
		fmt.Fprintln(os.Stderr, "printed to stderr")
	case "log":
		fmt.Fprintln(s.stderr, `{"@level":"warn","@message":"low on beans","left":3,"@module":"test","@timestamp":"2026-01-01T00:00:00.000000Z"}`)
	case "odd-json":
		fmt.Fprintln(s.stderr, `{"@level":7,"@message":{"a":1},"@timestamp":[]}`)
	case "hog":
		held := make([]byte, 1<<30)
		for i := 0; i < len(held); i += 4096 {
			held[i] = 1
		}
	case "fail":
		return nil, errors.New("beans: must be positive")
	case "wait":
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &stagev1.ConfigureResponse{}, nil
}

func (s *testStage) Stop(ctx context.Context, _ *stagev1.StopRequest) (*stagev1.StopResponse, error) {
	switch s.mode {
	case "hangs-in-stop":
		<-ctx.Done()
		return nil, ctx.Err()
	case "exits-in-stop":
		os.Exit(0)
	case "fails-in-stop":
		return nil, errors.New("disk on fire")
	}
	return &stagev1.StopResponse{}, nil
}
