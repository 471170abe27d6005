package front_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
	externaljwt "k8s.io/externaljwt/apis/v1"

	"github.com/catena-dev/catena/host/internal/front"
)

// signer signs tokens that live for less than an hour.
type signer struct {
	externaljwt.UnimplementedExternalJWTSignerServer
	key []byte
}

func (s signer) Metadata(context.Context, *externaljwt.MetadataRequest) (*externaljwt.MetadataResponse, error) {
	return &externaljwt.MetadataResponse{MaxTokenExpirationSeconds: 1800}, nil
}

func (s signer) FetchKeys(context.Context, *externaljwt.FetchKeysRequest) (*externaljwt.FetchKeysResponse, error) {
	return &externaljwt.FetchKeysResponse{Keys: []*externaljwt.Key{{KeyId: "k", Key: s.key}}, DataTimestamp: timestamppb.Now(), RefreshHintSeconds: 60}, nil
}

// Flags can be validated as often as one likes, and then be served: what Kubernetes' code makes of them stays with each attempt. It takes the time that
// tokens of a signer live for --service-account-max-token-expiration, which may not be less than an hour.
func TestValidatedTwice(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	socket := filepath.Join(dir, "signer.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	externaljwt.RegisterExternalJWTSignerServer(server, signer{key: public})
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	flags, err := front.ParseFlags(t.Context(), map[string][]string{
		"service-account-signing-endpoint": {socket}, "service-account-issuer": {"https://issuer.example.com"}, "service-account-extend-token-expiration": {"false"},
	}, defaults(dir)...)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := flags.Validate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
