package sdk

import (
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// Main runs the stage in this process until the host ends it. It is all that the main
// function of a stage has to call.
func Main(stage Stage) {
	if err := Serve(stage); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[0], err)
		os.Exit(1)
	}
}

// Serve runs the stage in this process until the host has stopped it. The process gets
// deaf to SIGINT, SIGTERM and SIGHUP, which are the host's business, and exits at once
// when the host is gone. Nothing may be written to os.Stdout before Serve is called.
//
// Started by hand, not by a host, Serve reads the command line instead: see --help.
func Serve(stage Stage) error {
	if os.Getenv(stagev1.MagicCookieKey) != stagev1.MagicCookieValue {
		return byHand(stage, os.Args[1:], os.Stdout)
	}
	host := os.Getppid()
	if err := exitWithHost(); err != nil {
		return err
	}
	leaveSignalsToHost()
	ln, err := inheritedListener()
	if err != nil {
		return err
	}
	logger := newLogger()
	log.SetFlags(0)
	log.SetOutput(logger.StandardWriter(&hclog.StandardLoggerOptions{InferLevels: true}))
	service, err := NewService(stage, hostOnly{Listener: ln, pid: host, uid: os.Geteuid(), log: logger}, logger)
	if err != nil {
		return err
	}
	defer service.Close()
	return servePlugin(service, logger)
}

// newLogger returns a logger whose lines the host understands. It takes the standard
// error of now, which go-plugin replaces.
func newLogger() hclog.Logger {
	level := hclog.LevelFromString(os.Getenv(stagev1.EnvLogLevel))
	if level == hclog.NoLevel {
		level = hclog.Info
	}
	return hclog.New(&hclog.LoggerOptions{Level: level, Output: os.Stderr, JSONFormat: true})
}

// maxMessage is the largest message of the host: flags and claims can be many.
const maxMessage = 64 << 20

// servePlugin serves the RPCs until the stage has stopped or the host says so.
func servePlugin(service *Service, logger hclog.Logger) error {
	served := false
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: stagev1.Handshake(),
		Plugins:         stagev1.Plugins(service),
		Logger:          logger,
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			served = true
			server := grpc.NewServer(append(opts, grpc.MaxRecvMsgSize(maxMessage))...)
			go func() {
				<-service.Stopped()
				time.Sleep(answerGrace)
				server.Stop()
			}()
			return server
		},
	})
	if !served {
		return errors.New("the control socket could not be opened")
	}
	return nil
}

// answerGrace is how long the answer to Stop may take to reach the host. The host then
// ends the process by go-plugin's own RPC; a process that it forgets ends by itself.
const answerGrace = 500 * time.Millisecond
