package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	// externalTimeout is how long Open waits for an external cluster by default.
	externalTimeout = 20 * time.Second
	// attemptTimeout is for one request to one endpoint.
	attemptTimeout = 5 * time.Second
	retryInterval  = 500 * time.Millisecond
	// firstByteTimeout is how long a server has to refuse a client's certificate.
	firstByteTimeout = time.Second
)

// checkExternal returns when one of the endpoints has served a read that needs the
// cluster's quorum.
func checkExternal(ctx context.Context, o Options) error {
	tlsConfig, err := externalTLS(o)
	if err != nil {
		return err
	}
	var targets []*url.URL
	var problems []error
	for _, endpoint := range o.Endpoints {
		target, err := parseEndpoint(endpoint)
		if err != nil {
			problems = append(problems, err)
		}
		targets = append(targets, target)
	}
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, externalTimeout)
		defer cancel()
	}
	return awaitExternal(ctx, targets, tlsConfig, o.Logger)
}

// externalTLS returns nil if no TLS file is given, as kube-apiserver's client does.
func externalTLS(o Options) (*tls.Config, error) {
	if o.CAFile == "" && o.CertFile == "" && o.KeyFile == "" {
		return nil, nil
	}
	for _, file := range []struct{ key, path string }{
		{"store.caFile", o.CAFile}, {"store.certFile", o.CertFile}, {"store.keyFile", o.KeyFile},
	} {
		if _, err := os.ReadFile(file.path); file.path != "" && err != nil {
			return nil, fmt.Errorf("%s: %w", file.key, err)
		}
	}
	info := transport.TLSInfo{TrustedCAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile}
	config, err := info.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("store.caFile, store.certFile, store.keyFile: %w", err)
	}
	return config, nil
}

func parseEndpoint(endpoint string) (*url.URL, error) {
	u, err := url.Parse(endpoint)
	if err == nil && u.Scheme == "unix" && u.Host == "" && filepath.IsAbs(u.Path) {
		return u, nil
	}
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return nil, fmt.Errorf("store.endpoints: %q is not a URL of the form https://HOST:PORT or unix:///PATH", endpoint)
	}
	if u.Port() == "" {
		return nil, fmt.Errorf("store.endpoints: %q has no port; etcd's is 2379", endpoint)
	}
	return u, nil
}

// awaitExternal tries all endpoints in turn until one responds, ctx ends, or no error is
// one that waiting can resolve.
func awaitExternal(ctx context.Context, targets []*url.URL, tlsConfig *tls.Config, log hclog.Logger) error {
	for first := true; ; first = false {
		var failures []error
		hopeless := 0
		for _, target := range targets {
			err := askEndpoint(ctx, target, tlsConfig)
			if err == nil {
				return nil
			}
			if isTLS(err) {
				hopeless++
			}
			failures = append(failures, fmt.Errorf("store.endpoints: etcd at %s does not respond: %w", target, err))
		}
		err := errors.Join(failures...)
		if hopeless == len(targets) {
			return err
		}
		if first {
			log.Warn("waiting for etcd", "error", err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(retryInterval):
		}
	}
}

// askEndpoint connects by itself first, for a better error: the client's own is "deadline
// exceeded".
func askEndpoint(ctx context.Context, target *url.URL, tlsConfig *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	if err := dial(ctx, target, tlsConfig); err != nil {
		return err
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{target.String()},
		TLS:       tlsConfig,
		Logger:    zap.NewNop(),
		Context:   ctx,
	})
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = client.Get(ctx, "catena/health")
	if errors.Is(err, rpctypes.ErrPermissionDenied) {
		return nil // it has responded; what this user may read does not matter here
	}
	return err
}

func dial(ctx context.Context, target *url.URL, tlsConfig *tls.Config) error {
	if target.Scheme == "https" {
		return dialTLS(ctx, target.Host, tlsConfig)
	}
	network, address := "tcp", target.Host
	if target.Scheme == "unix" {
		network, address = "unix", target.Path
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// dialTLS also reads a byte: since TLS 1.3, a server refuses a client's certificate
// only after the client's side of the handshake has ended.
func dialTLS(ctx context.Context, address string, config *tls.Config) error {
	if config == nil {
		config = &tls.Config{}
	}
	config = config.Clone()
	config.NextProtos = []string{"h2"} // whose servers speak first
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(firstByteTimeout)); err != nil {
		return err
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}

// isTLS reports whether an error is about certificates or TLS.
func isTLS(err error) bool {
	var verification *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var op *net.OpError
	return errors.As(err, &verification) || errors.As(err, &record) ||
		errors.As(err, &op) && op.Op == "remote error" // an alert
}
