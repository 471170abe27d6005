package stagetest

import (
	"context"
	"net"
	"testing"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// launchService runs the stage's service in this process, with gRPC between.
func (s *Stage) launchService(t testing.TB, stage sdk.Stage) {
	t.Helper()
	log := hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, Output: s.logs, JSONFormat: true})
	service, err := sdk.NewService(stage, s.data, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(service.Close)
	server := grpc.NewServer()
	stagev1.RegisterStageServer(server, service)
	pipe := bufconn.Listen(64 << 10)
	go func() { _ = server.Serve(pipe) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("passthrough:stage",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s.RPC = stagev1.NewStageClient(conn)
}
