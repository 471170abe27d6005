package sdk

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/catena-dev/catena/internal/idle"
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

// Serve runs the stage in this process until the host has stopped it. The process does
// not react to SIGINT, SIGTERM and SIGHUP, which the host handles, and exits at once when
// the host is gone. While it is idle, it returns memory to the system.
// Nothing may be written to os.Stdout before Serve is called.
//
// If no host has started the process, Serve reads the command line instead: see --help.
func Serve(stage Stage) error {
	if os.Getenv(stagev1.MagicCookieKey) != stagev1.MagicCookieValue {
		return runCommandLine(stage, os.Args[1:], os.Stdout)
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
	service, err := NewService(stage, newHostListener(ln, host, logger), logger)
	if err != nil {
		return err
	}
	defer service.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go (&idle.Program{OneProcessor: stage.RestOnOneProcessor}).Run(ctx)
	return servePlugin(service, logger)
}

// newLogger returns a logger whose lines the host understands. It has to be called before
// go-plugin replaces os.Stderr.
func newLogger() hclog.Logger {
	level := hclog.LevelFromString(os.Getenv(stagev1.EnvLogLevel))
	if level == hclog.NoLevel {
		level = hclog.Info
	}
	return hclog.New(&hclog.LoggerOptions{Level: level, Output: os.Stderr, JSONFormat: true})
}

// maxMessage is the largest message of the host, which may have many flags and claims.
const maxMessage = 64 << 20

// servePlugin serves the RPCs until the stage has stopped or the host ends it.
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
				time.Sleep(stopResponseGrace)
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

// stopResponseGrace is how long the response to Stop may take to reach the host. The host
// then ends the process by go-plugin's own RPC; without that, the process ends by itself.
const stopResponseGrace = 500 * time.Millisecond
