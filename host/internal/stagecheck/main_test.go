//go:build linux

package stagecheck

import (
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// The test binary is also the stage that is checked: with envMode set, it plays a stage
// that is good in everything but what the mode names.
const envMode = "STAGECHECK_TEST_MODE"

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "peer" {
		timeout, err := time.ParseDuration(os.Args[3])
		if err != nil {
			panic(err)
		}
		os.Exit(Peer(os.Args[2], timeout))
	}
	if mode := os.Getenv(envMode); mode != "" {
		play(mode)
		os.Exit(0)
	}
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(4*runtime.GOMAXPROCS(0))); err != nil { // most of them wait most of the time
		panic(err)
	}
	os.Exit(m.Run())
}

func play(mode string) {
	byHand := os.Getenv(stagev1.MagicCookieKey) == ""
	switch {
	case byHand && mode == "by-hand":
		time.Sleep(time.Hour)
	case byHand && mode == "by-hand-silent":
		os.Exit(1)
	case byHand && mode == "by-hand-status":
		fmt.Fprintln(os.Stderr, "is a part of a test")
		os.Exit(3)
	case byHand && mode == "by-hand-crash":
		fmt.Fprintln(os.Stderr, "Traceback (most recent call last):\n  File \"x\", line 3, in <module>\nNameError: name 'prnt' is not defined")
		os.Exit(1)
	case byHand:
		fmt.Fprintln(os.Stderr, "is a part of a test")
		os.Exit(1)
	case mode == "unflushed":
		time.Sleep(time.Hour)
	case mode == "padding":
		der := strings.Repeat("A", 100)
		fmt.Printf("1|1|unix|%s/x|grpc|%s==\n", os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), der)
		time.Sleep(time.Hour)
	case mode == "control":
		serveAnybody()
	case mode == "handshake":
		fmt.Println("hello")
		time.Sleep(time.Hour)
	}
	serve(mode)
}

func serve(mode string) {
	if mode != "signals" {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	}
	if mode != "host-death" {
		go exitWithHost()
	}
	fd, _ := strconv.Atoi(os.Getenv(stagev1.EnvListener))
	ln, err := net.FileListener(os.NewFile(uintptr(fd), "data"))
	if err != nil {
		panic(err)
	}
	log := hclog.New(&hclog.LoggerOptions{Output: os.Stderr, JSONFormat: true, Level: hclog.Info})
	b := &broken{mode: mode, stderr: os.Stderr}
	b.data = listener{ln, mode}
	service, err := sdk.NewService(b.stage(), b.data, log)
	if err != nil {
		panic(err)
	}
	b.Service = service
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: stagev1.Handshake(), Plugins: stagev1.Plugins(b), Logger: log,
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			switch mode {
			case "message-size":
			case "calls":
				opts = append(opts, grpc.MaxConcurrentStreams(6))
				fallthrough
			default:
				opts = append(opts, grpc.MaxRecvMsgSize(64<<20))
			}
			return grpc.NewServer(opts...)
		},
	})
	if mode == "stop" {
		os.Exit(7)
	}
}

func exitWithHost() {
	fd, _ := strconv.Atoi(os.Getenv(stagev1.EnvParent))
	_, _ = os.NewFile(uintptr(fd), "parent").Read(make([]byte, 1))
	os.Exit(3)
}

// serveAnybody serves the control socket without a look at the certificates of clients.
func serveAnybody() {
	own, err := selfSigned()
	if err != nil {
		panic(err)
	}
	path := os.Getenv("PLUGIN_UNIX_SOCKET_DIR") + "/x"
	ln, err := net.Listen("unix", path)
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&own)), grpc.MaxRecvMsgSize(64<<20))
	stagev1.RegisterStageServer(server, anybody{})
	fmt.Printf("1|1|unix|%s|grpc|%s\n", path, base64.RawStdEncoding.EncodeToString(own.Certificate[0]))
	_ = server.Serve(ln)
}

type anybody struct {
	stagev1.UnimplementedStageServer
}

func (anybody) Describe(context.Context, *stagev1.DescribeRequest) (*stagev1.DescribeResponse, error) {
	return &stagev1.DescribeResponse{Name: "test"}, nil
}

// listener takes connections of the host only. It closes idle connections in the mode "idle".
type listener struct {
	net.Listener
	mode string
}

func (l listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.mode != "peers" && peerOf(conn) != os.Getppid() {
			_ = conn.Close()
			continue
		}
		if l.mode == "idle" {
			conn = &impatient{Conn: conn}
		}
		return conn, nil
	}
}

func peerOf(conn net.Conn) (pid int) {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		panic(err)
	}
	_ = raw.Control(func(fd uintptr) {
		if cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}

type impatient struct{ net.Conn }

func (c *impatient) Read(p []byte) (int, error) {
	if len(p) == 1 { // how net/http waits for another request
		return c.Conn.Read(p)
	}
	timer := time.AfterFunc(10*time.Second, func() { _ = c.Close() })
	defer timer.Stop()
	return c.Conn.Read(p)
}

// broken is a good stage but for its mode.
type broken struct {
	*sdk.Service
	mode      string
	stderr    *os.File
	described int
	env       *sdk.Env
	one       sync.Mutex
	leak      [][]byte
	conns     []net.Conn
	data      net.Listener
}

func (b *broken) stage() sdk.Stage {
	schema := `{"type":"object"}`
	switch b.mode {
	case "schema":
		schema = "{"
	case "schema-type":
		schema = `{"type":"objekt"}`
	case "config-keys": // which it does not look at
		schema = `{"type":"object","additionalProperties":false}`
	}
	return sdk.Stage{Name: "test", Version: "v1.2.3", ConfigSchema: schema, New: b.build}
}
