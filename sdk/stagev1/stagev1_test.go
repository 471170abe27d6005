package stagev1

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
)

// A stage in another language is written after docs/protocol.md: nothing of the wire
// may be missing there.
func TestProtocolIsDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range wireConstants(t) {
		if !strings.Contains(string(text), "`"+value) {
			t.Errorf("%s: %q is not documented", name, value)
		}
	}
	for _, m := range Stage_ServiceDesc.Methods {
		if !strings.Contains(string(text), "| `"+m.MethodName+"`") {
			t.Errorf("method %s is not documented", m.MethodName)
		}
	}
}

// wireConstants are the string constants of wire.go and of the headers.
func wireConstants(t *testing.T) map[string]string {
	t.Helper()
	constants := map[string]string{}
	for _, name := range []string{"wire.go", "header/header.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 || spec.Names[0].Name == "PluginName" {
				return true
			}
			if literal, ok := spec.Values[0].(*ast.BasicLit); ok {
				if value, err := strconv.Unquote(literal.Value); err == nil {
					constants[spec.Names[0].Name] = value
				}
			}
			return true
		})
	}
	if len(constants) < 15 {
		t.Fatalf("only found %v", constants)
	}
	return constants
}

// The host dispenses a client by the name under which a stage registers its server.
func TestPlugins(t *testing.T) {
	t.Parallel()
	server := grpc.NewServer()
	stage := Plugins(UnimplementedStageServer{})[PluginName].(plugin.GRPCPlugin)
	if err := stage.GRPCServer(nil, server); err != nil {
		t.Fatal(err)
	}
	pipe := bufconn.Listen(1 << 10)
	go func() { _ = server.Serve(pipe) }()
	defer server.Stop()
	conn, err := grpc.NewClient("passthrough:stage", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client, err := Plugins(nil)[PluginName].(plugin.GRPCPlugin).GRPCClient(t.Context(), nil, conn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.(StageClient).Describe(t.Context(), &DescribeRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("%v", err)
	}
}
