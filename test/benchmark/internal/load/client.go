// Package load makes requests to an API server, some at a time over some HTTP/2 connections, and
// measures what they take.
package load

import (
	"context"
	"net"
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Client makes requests over one HTTP/2 connection.
type Client struct {
	// HTTP adds the credentials, and nothing else; URL is where the server is.
	HTTP *http.Client
	URL  string
	// The others are client-go's, with bodies in JSON and in protobuf, and for objects without a Go type.
	JSON, Proto *kubernetes.Clientset
	Dynamic     *dynamic.DynamicClient
}

// Connect returns n clients with a connection each.
func Connect(ctx context.Context, config *rest.Config, n int) ([]*Client, error) {
	var clients []*Client
	for range n {
		c, err := newClient(config)
		if err != nil {
			return nil, err
		}
		// A transport that is asked for several requests at first would open several connections.
		if err := c.JSON.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
			return nil, err
		}
		clients = append(clients, c)
	}
	return clients, nil
}

func newClient(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	if config.Dial == nil {
		config.Dial = (&net.Dialer{}).DialContext // client-go shares a connection unless there is a dialer
	}
	proto := rest.CopyConfig(config)
	proto.ContentType = "application/vnd.kubernetes.protobuf"
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	c := &Client{HTTP: h, URL: config.Host}
	if c.JSON, err = kubernetes.NewForConfigAndClient(config, h); err != nil {
		return nil, err
	}
	if c.Proto, err = kubernetes.NewForConfigAndClient(proto, h); err != nil {
		return nil, err
	}
	c.Dynamic, err = dynamic.NewForConfigAndClient(config, h)
	return c, err
}

// Close closes connections that no request uses.
func Close(clients []*Client) {
	for _, c := range clients {
		utilnet.CloseIdleConnectionsFor(c.HTTP.Transport)
	}
}
