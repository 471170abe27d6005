// Stage old is built against the first version of the protocol, of which it has a copy,
// and uses no SDK: hosts have to go on running it.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/hashicorp/go-plugin"

	"github.com/catena-dev/catena/test/compatible/testdata/v1/stagev1"
)

func main() {
	if os.Getenv(stagev1.MagicCookieKey) != stagev1.MagicCookieValue {
		fmt.Fprintln(os.Stderr, "a stage of Catena is started by its host")
		os.Exit(1)
	}
	go func() {
		_, _ = io.Copy(io.Discard, inherited(stagev1.EnvParent))
		os.Exit(3) // the host is gone
	}()
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	data, err := net.FileListener(inherited(stagev1.EnvListener))
	if err != nil {
		panic(err)
	}
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: stagev1.Handshake(),
		Plugins:         stagev1.Plugins(&old{data: data}),
		GRPCServer:      plugin.DefaultGRPCServer,
	})
}

func inherited(variable string) *os.File {
	fd, err := strconv.Atoi(os.Getenv(variable))
	if err != nil {
		panic(err)
	}
	return os.NewFile(uintptr(fd), variable)
}

// old serves what it must, and answers UNIMPLEMENTED to everything else.
type old struct {
	stagev1.UnimplementedStageServer
	data net.Listener
	host *stagev1.Host
}

func (o *old) Describe(context.Context, *stagev1.DescribeRequest) (*stagev1.DescribeResponse, error) {
	return &stagev1.DescribeResponse{Name: "old", Version: "v1", Sdk: "none"}, nil
}

func (o *old) Configure(_ context.Context, req *stagev1.ConfigureRequest) (*stagev1.ConfigureResponse, error) {
	o.host = req.GetHost()
	go func() { _ = http.Serve(o.data, o) }()
	return &stagev1.ConfigureResponse{Claims: []*stagev1.Claim{{Path: "/old", Match: stagev1.Claim_PREFIX}}}, nil
}

// ServeHTTP answers /old, calls the stages behind for /old/next, and declines the rest.
func (o *old) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/old":
		fmt.Fprintln(w, "old", r.Header.Get(stagev1.HeaderUser) != "")
	case strings.HasPrefix(r.URL.Path, "/old/next"):
		o.next(w, r)
	default:
		w.Header().Set(stagev1.HeaderDecline, "1")
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusNotFound)
	}
}

func (o *old) next(w http.ResponseWriter, r *http.Request) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", o.host.GetSocket())
	}
	transport := &http.Transport{DialContext: dial}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://host"+strings.TrimPrefix(r.URL.Path, "/old/next"), nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	req.Header.Set("Authorization", "Bearer "+o.host.GetToken())
	req.Header.Set(stagev1.HeaderNext, r.Header.Get(stagev1.HeaderRequest))
	resp, err := transport.RoundTrip(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body)
}
