package stagev1

import (
	"context"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
)

// Handshake is what go-plugin's two sides have to agree on before anything else.
func Handshake() plugin.HandshakeConfig {
	return plugin.HandshakeConfig{
		ProtocolVersion:  ProtocolVersion,
		MagicCookieKey:   MagicCookieKey,
		MagicCookieValue: MagicCookieValue,
	}
}

// Plugins is the plugin set of go-plugin for both sides: a stage passes what serves
// its RPCs, the host nil. The host dispenses PluginName and gets a StageClient.
func Plugins(server StageServer) plugin.PluginSet {
	return plugin.PluginSet{PluginName: &grpcPlugin{server: server}}
}

// grpcPlugin makes the service Stage known to go-plugin.
type grpcPlugin struct {
	plugin.NetRPCUnsupportedPlugin
	server StageServer
}

var _ plugin.GRPCPlugin = (*grpcPlugin)(nil)

// GRPCServer is called in the stage.
func (p *grpcPlugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	RegisterStageServer(s, p.server)
	return nil
}

// GRPCClient is called in the host.
func (p *grpcPlugin) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return NewStageClient(conn), nil
}
