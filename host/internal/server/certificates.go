package server

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/pki"
)

// renewal is how often certificates are looked at that may have to be renewed. Servers and
// clients read them anew when their files change.
const renewal = 12 * time.Hour

// certificates are those of the server, and of its authority.
type certificates struct {
	*pki.PKI
	opts pki.Options
	log  hclog.Logger
}

func ensureCertificates(opts pki.Options, log hclog.Logger) (*certificates, error) {
	p, err := pki.Ensure(opts)
	return &certificates{p, opts, log}, err
}

// renew renews the certificates in time, until ctx ends.
func (c *certificates) renew(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(renewal):
		}
		if _, err := pki.Ensure(c.opts); err != nil {
			c.log.Error("certificates could not be renewed", "error", err)
		}
	}
}
