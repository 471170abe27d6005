package store

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/host/internal/panics"
)

// containUnary has a call fail that panics.
func containUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	err = panics.Call(func() (err error) {
		resp, err = handler(ctx, req)
		return err
	})
	return resp, statusOf(err)
}

// containStream has a stream fail that panics.
func containStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return statusOf(panics.Call(func() error { return handler(srv, stream) }))
}

// statusOf makes a panic an internal error.
func statusOf(err error) error {
	if p, ok := err.(*panics.Error); ok { //nolint:errorlint // it is not wrapped
		return status.Error(codes.Internal, p.Error())
	}
	return err
}
