package system

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-plugin"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// envFault makes a stage do something wrong.
const envFault = "SYSTEM_TEST_FAULT"

// misbehave is what a stage can get wrong before its first response.
func misbehave(name, fault string) {
	good := sdk.Stage{Name: name, New: newTestStage}
	switch fault {
	case "no plugin": // any program of the machine
		fmt.Println("usage: frobnicate FILE")
		os.Exit(2)
	case "silent end":
		return
	case "garbage":
		fmt.Println("starting up, please wait")
		sdk.Main(good)
	case "hang":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
		time.Sleep(time.Hour)
	case "exit":
		fmt.Fprintln(os.Stderr, "reading the licence file")
		fmt.Fprintln(os.Stderr, "the licence has expired")
		os.Exit(3)
	case "panic":
		panic("the stage does not like mornings")
	case "protocol":
		socket := filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "plugin")
		cert := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("certificate", 20)))
		fmt.Printf("1|9|unix|%s|grpc|%s\n", socket, cert)
		time.Sleep(time.Hour)
	case "no name":
		serveNamed("")
	case "other name":
		serveNamed("somebody-else")
	case "two handshakes": // as a wrapper that starts the stage twice
		fmt.Println("1|1|tcp|127.0.0.1:1234|grpc|" + strings.Repeat("A", 200))
		time.Sleep(time.Hour)
	case "never ready":
		sdk.Main(sdk.Stage{Name: name, New: newNeverReady})
	case "conflicts":
		sdk.Main(sdk.Stage{Name: name, New: newConflicting})
	case "slow":
		sdk.Main(sdk.Stage{Name: name, New: newSlow})
	default:
		fmt.Fprintf(os.Stderr, "unknown fault %q\n", fault)
		os.Exit(1)
	}
}

// envGo names the file for which a slow stage waits.
const envGo = "SYSTEM_TEST_GO"

// newSlow takes as long as the test wants.
func newSlow(env *sdk.Env) (http.Handler, error) {
	for {
		if _, err := os.Stat(os.Getenv(envGo)); err == nil {
			return newTestStage(env)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// newNeverReady makes a stage whose readiness check never passes.
func newNeverReady(env *sdk.Env) (http.Handler, error) {
	env.HealthCheck("mood", sdk.HealthKinds{Readyz: true}, func(context.Context) error { return errors.New("not in the mood") })
	return newTestStage(env)
}

// sharedPath is the path that two stages serve.
const sharedPath = "/shared"

func newConflicting(env *sdk.Env) (http.Handler, error) {
	env.Claim(sharedPath)
	env.ListPaths(sharedPath)
	return http.NotFoundHandler(), nil
}

// named is a stage that implements Describe alone.
type named struct {
	stagev1.UnimplementedStageServer
	name string
}

func (n named) Describe(context.Context, *stagev1.DescribeRequest) (*stagev1.DescribeResponse, error) {
	return &stagev1.DescribeResponse{Name: n.name}, nil
}

func serveNamed(name string) {
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: stagev1.Handshake(),
		Plugins:         stagev1.Plugins(named{name: name}),
		GRPCServer:      plugin.DefaultGRPCServer,
	})
}
