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

var errNoHost = errors.New("is a stage of Catena and runs as a part of it: put the file into one of the pluginDirs of catena's configuration, name it among the stages, and start catena")

// Serve runs the stage in this process until the host has stopped it. The process gets
// deaf to SIGINT, SIGTERM and SIGHUP, which are the host's business, and exits at once
// when the host is gone. Nothing may be written to os.Stdout before Serve is called.
func Serve(stage Stage) error {
	if os.Getenv(stagev1.MagicCookieKey) != stagev1.MagicCookieValue {
		return errNoHost
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
			server := grpc.NewServer(append(opts,
				grpc.MaxRecvMsgSize(maxMessage),
				grpc.StreamInterceptor(endStreams(service.Stopped())))...)
			go func() {
				<-service.Stopped()
				force := time.AfterFunc(answerGrace, server.Stop)
				defer force.Stop()
				server.GracefulStop()
			}()
			return server
		},
	})
	if !served {
		return errors.New("the control socket could not be opened")
	}
	return nil
}

// answerGrace is how long the answer to Stop may take to reach the host.
const answerGrace = time.Second

// endStreams ends streams when the stage has stopped: go-plugin has one that it does
// not end itself, which would keep the process from ending.
func endStreams(stopped <-chan struct{}) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx, cancel := context.WithCancel(stream.Context())
		defer cancel()
		go func() {
			select {
			case <-stopped:
				cancel()
			case <-ctx.Done():
			}
		}()
		return handler(srv, endingStream{stream, ctx})
	}
}

// endingStream is a stream with another context.
type endingStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s endingStream) Context() context.Context { return s.ctx }
