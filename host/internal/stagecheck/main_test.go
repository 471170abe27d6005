//go:build linux

package stagecheck

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// The test binary is also the stage that is checked: with envMode set, it plays a stage
// that is good in everything but what the mode names.
const envMode = "STAGECHECK_TEST_MODE"

func TestMain(m *testing.M) {
	if mode := os.Getenv(envMode); mode != "" {
		play(mode)
		os.Exit(0)
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
	case byHand:
		fmt.Fprintln(os.Stderr, "is a part of a test")
		os.Exit(1)
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
	service, err := sdk.NewService(b.stage(), listener{ln, mode}, log)
	if err != nil {
		panic(err)
	}
	b.Service = service
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: stagev1.Handshake(), Plugins: stagev1.Plugins(b), Logger: log,
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server { return grpc.NewServer(opts...) },
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

// listener closes idle connections in the mode "idle".
type listener struct {
	net.Listener
	mode string
}

func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil && l.mode == "idle" {
		conn = &impatient{Conn: conn}
	}
	return conn, err
}

type impatient struct{ net.Conn }

func (c *impatient) Read(p []byte) (int, error) {
	if len(p) == 1 { // how net/http waits for another request
		return c.Conn.Read(p)
	}
	timer := time.AfterFunc(5*time.Second, func() { _ = c.Close() })
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
}

func (b *broken) stage() sdk.Stage {
	schema := `{"type":"object"}`
	switch b.mode {
	case "schema":
		schema = "{"
	case "config-keys": // which it does not look at
		schema = `{"type":"object","additionalProperties":false}`
	}
	return sdk.Stage{Name: "test", Version: "v1.2.3", ConfigSchema: schema, New: b.build}
}
